"""The group of all ranks: what they exchange, and how failures are reported."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from losscli.console.notes import note
from losscli.errors import EXIT_INTERRUPTED, RankError, first_line
from losscli.machine import memory
from losscli.processes import end_with_parent
from losscli.ranks.place import TIMEOUT_VARIABLE, Place, seconds_of_collectives

T = TypeVar("T")
GRACE_SECONDS = 8.0
"""The first rank's time to write its report after a signal."""


class Group:
    """All ranks, which must call its methods in the same order; this one has one rank."""

    rank, size = 0, 1

    def gather(self, step: str, value: T) -> list[T]:
        """Return each rank's value; RankError if a rank is missing or at another step."""
        return [value]

    def meet(self) -> None:
        """Wait for all ranks, on a GPU in stream order."""

    def check(self) -> None:
        """Run a collective as losses do; RankError if it fails."""


class ProcessGroup(Group):
    """The ranks that torchrun started."""

    def __init__(self, place: Place, device: str) -> None:
        """Join the others; losses run on ``device``."""
        self.rank, self.size, self.device = place.rank, place.size, device
        timeout = timedelta(seconds=seconds_of_collectives())
        backend: str = "gloo"
        more: dict[str, Any] = {}
        if device != "cpu":
            torch.cuda.set_device(device)
            backend, more = "nccl", {"device_id": torch.device(device)}
        try:
            store, rank, size = next(rendezvous("env://", timeout=timeout))
        except RuntimeError as error:
            text = f"no response from torchrun's MASTER_ADDR and MASTER_PORT: {first_line(error)}"
            raise RankError(text, is_told=self.rank > 0) from error
        store.set_timeout(timeout)
        self._store = dist.distributed_c10d.PrefixStore("losscli", store)
        with self._naming_missing_ranks():
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=timeout, **more
            )
            # Apart from the default group, which may have unfinished collectives; with time for
            # ranks whose collective times out to report.
            longer = timeout + timedelta(seconds=10)
            self._agreements = dist.new_group(backend="gloo", timeout=longer)
        self._one = torch.zeros((), device=device)

    def gather(self, step: str, value: T) -> list[T]:
        told: list[Any] = [None] * self.size
        with self._naming_missing_ranks():
            dist.all_gather_object(told, (step, value), self._agreements)
        steps = [each for each, _ in told]
        if len({*steps}) > 1:
            disagree(self, steps)
        return [each for _, each in told]

    def meet(self) -> None:
        if self.device != "cpu":
            dist.all_reduce(self._one)
            return
        with self._naming_missing_ranks():
            dist.barrier(self._agreements)

    def check(self) -> None:
        with self._naming_missing_ranks():
            dist.all_reduce(self._one)
            if self.device != "cpu":
                torch.cuda.synchronize(self.device)

    @contextmanager
    def _naming_missing_ranks(self) -> Iterator[None]:
        """Turn a failed collective's error into RankError; the first remaining rank reports it."""
        try:
            yield
            return
        except RuntimeError as error:
            failure = error
        self._store.set(f"here/{self.rank}", "")
        missing: list[int] = []
        end = time.monotonic() + 3.0  # for signs of life of the others
        try:
            while time.monotonic() < end:
                missing = [n for n in range(self.size) if not self._store.check([f"here/{n}"])]
                if not missing:
                    break
                time.sleep(0.1)
        except RuntimeError:  # torchrun itself has ended
            missing = [n for n in range(self.size) if n != self.rank]
        here = [n for n in range(self.size) if n not in missing]
        if missing:
            names = ", ".join(map(str, missing))
            text = f"rank{'s' * (len(missing) > 1)} {names} of {self.size} ended, or did not come "
            text += f"within the {TIMEOUT_VARIABLE} of {seconds_of_collectives()} s"
        else:
            text = f"a collective of all {self.size} ranks failed: {first_line(failure)}"
        raise RankError(f"{text}.", is_told=self.rank != min(here)) from failure


_joined: list[ProcessGroup] = []


def join(place: Place, device: str) -> ProcessGroup:
    """Join the group of all ranks, once."""
    if not _joined:
        end_with_parent(gently=True)  # torchrun ends its processes, unless it is killed itself
        _end_when_told()
        _joined.append(ProcessGroup(place, device))
    return _joined[0]


def _end_when_told() -> None:
    """End this process GRACE_SECONDS after a signal, as Python's handlers wait for collectives."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def watch() -> None:
        os.read(read, 1)
        time.sleep(GRACE_SECONDS)
        os._exit(EXIT_INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()


def joined() -> Group:
    """Return this process's group, perhaps of itself alone."""
    return _joined[0] if _joined else Group()


def leave() -> None:
    """Leave the group; a thread that freed tensors while Python exits would abort."""
    while _joined:
        del _joined.pop()._agreements
        dist.destroy_process_group()
        gc.collect()


def largest(group: Group, number: float) -> float:
    """Return the largest number of all ranks."""
    return max(group.gather("agrees on a number", number))


def free_bytes(group: Group, device: str, own: Callable[[str], int] = memory.free_bytes) -> int:
    """Return the least free memory of a rank; ranks share a CPU's."""
    free = own(device) // (group.size if device == "cpu" else 1)
    return min(group.gather("reports its free memory", free))


def together(group: Group, call: Callable[[], T]) -> T:
    """Return a call's result, or raise its exception; RankError if the ranks' exceptions differ."""
    if group.size == 1:
        return call()
    failure: Exception | None = None
    try:
        result = call()
    except Exception as error:
        failure = error
    kind = type(failure).__name__ if failure else ""
    text = f"raised {kind}: {first_line(failure)}" if failure else "raised nothing"
    kinds, texts = zip(*group.gather("has made a call", (kind, text)), strict=True)
    if len({*kinds}) > 1:
        disagree(group, texts)
    if failure is None:
        return result
    try:
        group.check()  # the failure may be that of a collective: then there are no others
        raise failure
    except RankError:
        disagree(group, texts)
    finally:
        failure = None  # its frames hold this one, and the operands of the call


def disagree(group: Group, told: Sequence[str]) -> NoReturn:
    """Raise RankError with each rank's message."""
    texts = "; ".join(f"rank {rank} {text}" for rank, text in enumerate(told))
    raise RankError(f"the ranks disagree: {texts}.", is_told=group.rank != 0)


def announce(group: Group) -> None:
    """Note that a group of one exchanges nothing."""
    if group.size == 1:
        note("a group of one rank: nothing is exchanged, all classes are on it")
