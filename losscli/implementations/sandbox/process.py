"""Starts workers, asks them, and ends them: the judge's side of the sandbox.

Nothing is left behind: operands and results lie in files in memory without a name, temporary files
in a file system of the worker's own, and the kernel kills all processes of a worker with the
process that keeps it, and that one with the judge.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import site
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import torch

from losscli.build import headers
from losscli.cases import Case
from losscli.directories import CACHE_VARIABLE, cache_directory
from losscli.errors import LosscliError, UnfitError, printable
from losscli.implementations.allowance import Allowance
from losscli.implementations.errors import (
    NoSecondDerivativesError,
    NotBuiltError,
    NotIsolatedError,
    SandboxError,
    SubjectError,
)
from losscli.implementations.files import UserFile, imports_losscli
from losscli.implementations.sandbox import messages
from losscli.implementations.sandbox.confinement.environment import kept
from losscli.implementations.sandbox.confinement.limits import TOO_MANY_PROCESSES, TOO_MUCH_MEMORY
from losscli.implementations.sandbox.messages import (
    Load,
    Raised,
    Ready,
    Replied,
    Reply,
    Request,
    Tunes,
)
from losscli.implementations.sandbox.methods import METHODS
from losscli.implementations.sandbox.parts import missing
from losscli.implementations.sandbox.wire import Outgoing, write
from losscli.machine import allocator
from losscli.model_case import ModelCase
from losscli.processes import Channel, Process, how_ended
from losscli.reasons import Code
from losscli.units import format_bytes

START_SECONDS = 120.0
END_SECONDS = 5.0
_POLL_SECONDS = 0.001
LARGE_BYTES = 2**26
"""Bytes of results from which on their memory is given back after each reply."""
SAMPLING = ("samples", "looped")
"""The methods whose time counts, in which nothing may be tuned."""
TUNES_BETWEEN = "tunes a kernel between samples, which are not of one kernel"
EXCESSES: dict[int, tuple[Code, str]] = {
    TOO_MUCH_MEMORY: ("memory_limit", "its processes took more memory than the {memory} they may"),
    TOO_MANY_PROCESSES: ("process_died", "it had more than {processes} processes and threads"),
}
"""Why a keeper ended a worker."""
LOG_BYTES = 2**16
"""Bytes that are kept of the beginning and of the end of what a candidate writes."""


class _Log:
    """What a worker writes, of which the beginning and the end are kept."""

    def __init__(self, most: int, flooded: Any) -> None:
        self.reading, self.writing = os.pipe()
        self.most, self.flooded = most, flooded
        self.count = 0
        self.head, self.tail = b"", b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while data := os.read(self.reading, 2**16):
            self.count += len(data)
            missing = LOG_BYTES - len(self.head)
            self.head += data[:missing]
            self.tail = (self.tail + data[missing:])[-LOG_BYTES:]
            if self.count > self.most:
                self.flooded()
        os.close(self.reading)

    def end(self) -> None:
        """Read what is left."""
        self._thread.join(END_SECONDS)

    @property
    def text(self) -> str:
        """What was kept."""
        left_out = self.count - len(self.head) - len(self.tail)
        between = f"\n[{left_out} bytes left out]\n" if left_out > 0 else ""
        head, tail = (part.decode(errors="replace") for part in (self.head, self.tail))
        return printable(head + between + tail)


class Zygote:
    """The process that forks workers. It is started once, for importing torch takes a second."""

    def __init__(self) -> None:
        self._process = Process(
            [sys.executable, "-m", "losscli.implementations.sandbox.zygote"],
            {**environment_of_workers(os.environ), **_user_packages(), "PYTHONUNBUFFERED": "1"},
        )
        self._lock = threading.Lock()
        with contextlib.suppress(TimeoutError):
            if self._process.channel.receive(START_SECONDS):
                return
        self.end()
        raise UnfitError("the process that starts workers could not be started.")

    def fork(self, wanted: dict[str, Any], descriptors: Sequence[int]) -> int:
        """Return the number of the keeper of a new worker."""
        channel = self._process.channel
        with self._lock:
            socket.send_fds(channel.socket, [json.dumps(wanted).encode()], descriptors)
            pid = channel.receive(START_SECONDS)
        if pid is None:
            raise UnfitError("the process that starts workers has ended.")
        return int(pid)

    def end(self) -> None:
        """End the process, and with it all workers."""
        self._process.close()


@cache
def zygote() -> Zygote:
    """Return the process that forks the workers of this one; it is started when first asked for."""
    started = Zygote()
    atexit.register(started.end)
    return started


def scratch_directory() -> Path:
    """Return the directory on which each worker has a file system of its own.

    Where the kernel offers none, workers have directories in it, and judges keep there what files
    have compiled: those of judges that are no more are removed.
    """
    directory = cache_directory("what candidates write") / "scratch"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in directory.iterdir():
        judge = left.name.partition("-")[0]
        if judge.isdigit() and not Path(f"/proc/{judge}").exists():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
    return directory


def _allocator() -> dict[str, str]:
    """Return what makes a worker keep freed memory as this process does, within its limit."""
    return allocator.SMALL_PAD if allocator.keeps() else {}


def _user_packages() -> dict[str, str]:
    """Return what names the folder of this user's packages to a process without a home."""
    found = site.getusersitepackages() in sys.path
    return {"PYTHONUSERBASE": site.getuserbase()} if found else {}


def environment_of_workers(given: Mapping[str, str], source: str = "") -> dict[str, str]:
    """Return what workers may see of an environment, with what they compute and compile by.

    It names the cache only for a source that imports losscli, which has its kernels there.
    """
    path = headers.search_path(given.get("CPATH", ""))
    found = {**kept(given), **_allocator(), **({"CPATH": path} if path else {})}
    if imports_losscli(source):
        found[CACHE_VARIABLE] = str(cache_directory("kernels").absolute())
    return found


def hidden_from_workers(source: str) -> list[str]:
    """Return what no worker needs of the cache: whoever opens a lock can take it.

    All of it, but for a source that imports losscli.
    """
    root = cache_directory("kernels").absolute()
    if not imports_losscli(source):
        return [str(root)]
    return [str(root / name) for name in ("locks", "lock", "verdicts", "runs", "scratch", "work")]


def _random_number() -> int:
    return int.from_bytes(os.urandom(6))


class Worker:
    """One worker, with one file."""

    def __init__(
        self,
        file: UserFile,
        device: str,
        allowance: Allowance,
        order: Sequence[str] = (),
        *,
        mends: bool = False,
        unmarked: bool = False,
        built: bytes = b"",
        require_isolation: bool = False,
    ) -> None:
        """Start it, and have it import the file; ``built`` is what another has compiled of it.

        ``unmarked``: it is asked for one answer of a process that looks like a user's own;
        ``require_isolation``: it imports nothing where a part of the walls is missing.

        Raises:
            NotBuiltError: it cannot be imported.
            NotIsolatedError: a part of the walls is missing.
            SandboxError: it died, or did not answer in time.
        """
        self.file, self.device, self.allowance = file, device, allowance
        self.died: SandboxError | None = None
        self._flooded = self.tuned = False
        self.reached: tuple[str, ...] = ()
        """The parts of the walls behind which it runs."""
        self._own_scratch: Path | None = None
        operands = os.memfd_create("operands", os.MFD_CLOEXEC)
        results = os.memfd_create("results", os.MFD_CLOEXEC)
        self.files = (operands, results)
        self.outgoing = Outgoing(operands, results, device)
        ours, theirs = socket.socketpair()
        status, status_end = os.pipe()
        self.channel, self.status = Channel(ours), status
        self.log = _Log(allowance.output_bytes, self._flood)
        wanted = {
            "device": device,
            "memory_bytes": allowance.memory_bytes,
            "processes": allowance.processes,
            "scratch": str(scratch_directory().absolute()),
            "environ": environment_of_workers(os.environ, file.source),
            "shown": [] if file.revision else [str(file.path.absolute().parent)],
            "hidden": hidden_from_workers(file.source),
        }
        descriptors = (theirs.fileno(), self.log.writing, status_end, operands, results)
        self.keeper = 0
        try:
            self.keeper = zygote().fork(wanted, descriptors)
        finally:
            theirs.close()
            os.close(status_end)
            os.close(self.log.writing)
        try:
            ready = self._reply(START_SECONDS)
            if isinstance(ready, Raised):  # before anything of the file runs
                raise UnfitError(f"a worker cannot be closed in: {ready.text}.")
            if not isinstance(ready, Ready):
                raise self._forged("no greeting")
            self.reached = tuple(ready.reached)
            if "temporary files" not in self.reached:
                self._own_scratch = Path(ready.scratch)
            if require_isolation and (lacks := missing(self.reached)):
                text = f"isolation is required, and this machine lacks: {', '.join(lacks)}"
                raise NotIsolatedError(text)
            write(operands, 0, memoryview(built))
            self._load(order, mends, unmarked, len(built))
            os.ftruncate(operands, 0)
        except BaseException as error:
            log = self.end()
            if isinstance(error, SandboxError):
                error.log, error.reached = log, self.reached
            raise

    def ask(self, method: str, *arguments: Any, case: Case | None, generation: int = 0) -> Any:
        """Return what a method of the subject of a case returns.

        Raises:
            SubjectError: the candidate raised; NoSecondDerivativesError where it has none.
            SandboxError: the worker died, hangs or forges: it is ended.
            torch.OutOfMemoryError: the memory of a GPU ran out.
        """
        if self.died:
            raise self.died
        encoded = self.outgoing.encode(arguments)
        number = _random_number()
        model = case if isinstance(case, ModelCase) else None
        request = Request(
            *(number, method, encoded, self.outgoing.storages),
            *(None if model else case, model, generation),
        )
        try:
            messages.send(self.channel, request)
        except OSError:
            raise self._ended() from None
        asked = METHODS[method]
        seconds = self.allowance.build_seconds if asked.takes_long else self.allowance.call_seconds
        reply = self._answer(number, seconds)
        if self.tuned and method in SAMPLING:
            raise SubjectError(TUNES_BETWEEN, "clock_disagrees")
        if isinstance(reply, Raised):
            raise self._error(reply)
        try:
            value = self.outgoing.decode(reply.value, asked.result)
            if not asked.fits(value, *arguments):
                raise ValueError(f"no answer to {method}")
            if not asked.keeps_operands:
                self.outgoing.take_back()
        except (ValueError, TypeError, RuntimeError, msgspec.MsgspecError) as error:
            raise self._forged(str(error)) from None
        if os.fstat(self.files[1]).st_size > LARGE_BYTES:
            os.ftruncate(self.files[1], 0)
        return value

    def end(self) -> str:
        """End the worker and all it has started; return what it wrote."""
        if self.channel.socket.fileno() >= 0:
            self._wait_for_end(kill=True)
            self.channel.socket.close()
            os.close(self.status)
            for file in self.files:
                os.close(file)
            self.log.end()
            if self._own_scratch:
                shutil.rmtree(self._own_scratch, ignore_errors=True)
        return self.log.text

    def _load(self, order: Sequence[str], mends: bool, unmarked: bool, built: int) -> None:
        file = self.file
        number = _random_number()
        wanted = Load(
            *(number, file.named, file.source, str(file.path.absolute()), file.revision),
            *(file.name, list(order), mends, unmarked, built),
        )
        messages.send(self.channel, wanted)
        reply = self._answer(number, self.allowance.build_seconds)
        if isinstance(reply, Raised):
            raise NotBuiltError(reply.text, compiler=reply.kind == "build")

    def _answer(self, number: int, seconds: float) -> Replied | Raised:
        """Wait for the answer to a question, so long and no longer."""
        reply = self._reply(seconds)
        self.tuned, over = False, time.monotonic() + self.allowance.tuning_seconds
        # Each process that a question starts says so for itself.
        while isinstance(reply, Tunes) and reply.number == number:
            self.tuned = True
            reply = self._reply(max(over - time.monotonic(), 0.0))
        if isinstance(reply, Raised) and reply.kind == "forked":
            raise self._fatal("left_process", reply.text)
        if isinstance(reply, Ready | Tunes) or reply.number != number:
            raise self._forged("an answer that belongs to no question")
        return reply

    def _reply(self, seconds: float) -> Reply:
        """Wait for a message, so long and no longer."""
        try:
            reply = messages.receive_reply(self.channel, seconds)
        except TimeoutError:
            raise self._fatal("hangs", f"did not answer within {seconds:g} s") from None
        except OSError:
            raise self._ended() from None
        except (ValueError, msgspec.MsgspecError) as error:
            raise self._forged(str(error)) from None
        if reply is None:
            raise self._ended()
        if isinstance(reply, Raised):
            reply.text = printable(reply.text)
        return reply

    def _error(self, raised: Raised) -> Exception:
        if raised.kind == "out_of_memory":
            if self.device == "cpu":
                most = format_bytes(self.allowance.memory_bytes)
                return SandboxError("memory_limit", f"took more memory than the {most} it may")
            return torch.OutOfMemoryError(raised.text)
        if raised.kind == "no_second_derivatives":
            return NoSecondDerivativesError(raised.text)
        if raised.kind in ("build", "import"):
            return NotBuiltError(raised.text, compiler=raised.kind == "build")
        if raised.kind == "error":
            return LosscliError(raised.text)
        if raised.broke:
            return self._fatal("broke_device", raised.text)
        error = SubjectError(raised.text, raised.code)
        error.refused = raised.refused
        return error

    def _ended(self) -> SandboxError:
        """Say how a worker ended that should have answered."""
        if self._flooded:
            most = self.allowance.output_bytes
            return self._fatal("flooded_output", f"wrote more than {most} bytes of output")
        code = self._wait_for_end(kill=False)
        if code in EXCESSES:
            why, text = EXCESSES[code]
            memory = format_bytes(self.allowance.memory_bytes)
            told = text.format(memory=memory, processes=self.allowance.processes)
            return self._fatal(why, told)
        how = "without a word" if code is None else how_ended(code)
        return self._fatal("process_died", f"its process ended {how}")

    def _forged(self, what: str) -> SandboxError:
        text = f"something else than losscli wrote to the judge's channel: {what[:100]}"
        return self._fatal("forged", text)

    def _fatal(self, code: Code, text: str) -> SandboxError:
        self.died = SandboxError(code, text)
        self._wait_for_end(kill=True)
        return self.died

    def _wait_for_end(self, *, kill: bool) -> int | None:
        """Wait until all processes of the worker have ended; return its exit code."""
        if not self.keeper:
            return None
        if kill:
            self._signal(signal.SIGTERM)
        code = self._status(END_SECONDS)
        limit = time.monotonic() + END_SECONDS
        while self._signal(signal.SIGKILL) and time.monotonic() < limit:
            time.sleep(_POLL_SECONDS)
        self.keeper = 0
        return code

    def _signal(self, number: int) -> bool:
        """Send a signal to the keeper; tell whether it was there.

        Without a number it would go to the judge's own group.
        """
        if not self.keeper:
            return False
        try:
            os.kill(self.keeper, number)
        except ProcessLookupError:
            return False
        return True

    def _status(self, seconds: float) -> int | None:
        ready, _, _ = select.select([self.status], [], [], seconds)
        data = os.read(self.status, 64) if ready else b""
        return int(data) if data.strip().lstrip(b"-").isdigit() else None

    def _flood(self) -> None:
        if not self._flooded:
            self._flooded = True
            self._signal(signal.SIGTERM)
