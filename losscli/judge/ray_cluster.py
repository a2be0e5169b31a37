"""The nodes of a Ray cluster, or of one started on this machine, as judges of a farm."""

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from losscli.errors import UnfitError, UsageError, first_line
from losscli.files.directories import weakness_along
from losscli.files.reading import read_bytes
from losscli.judge.farm import LostError, NodeAnswer, Room, read_answer
from losscli.judge.on_node import Order
from losscli.judge.pool import WORKER_BYTES

ANSWER_SECONDS = 5.0
"""How long an address may take to answer, including the look-up of its name."""
VARIABLE = "RAY_ADDRESS"
"""Ray's own variable for the cluster to use."""
CLIENT = "ray://"
LOCAL, AUTO = "local", "auto"
"""Values of the variable: start a cluster on this machine; use the one of this machine."""

_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:/\[\]\s]+):([0-9]{1,5})")
JOIN_SECONDS = 10.0
"""How long a cluster that answers may take to accept this process."""


@dataclass(frozen=True)
class Address:
    """A cluster's address."""

    host: str
    port: int
    client: bool
    """Whether a Ray Client server is there."""
    variable: str = ""
    """The environment variable that it is from."""

    @property
    def text(self) -> str:
        """The address as Ray takes it."""
        return f"{CLIENT if self.client else ''}{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.text} ({self.variable})" if self.variable else self.text

    def expect_answer(self) -> None:
        """Raise UnfitError if nothing listens at the address."""
        why = f"no cluster responded within {ANSWER_SECONDS:g} s"
        try:
            # Each address of the host gets the same time.
            place, most = (self.host.strip("[]"), self.port), ANSWER_SECONDS
            if done_within(most, lambda: socket.create_connection(place, most).close()):
                return
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            why = str(error)
        raise UnfitError(
            f"no Ray cluster responds at {self}: {why}. Start one with `ray start --head`; its "
            f"port for {CLIENT} is that of the Ray Client server, 10001."
        )


def client_address(text: str) -> Address:
    """Return the address of a Ray Client server from ``HOST:PORT``; else UsageError."""
    found = _parse(text, client=True)
    if not found:
        told = f"'{CLIENT}{text}' is not an address of a Ray cluster."
        raise UsageError(f"{told} Write {CLIENT}HOST:PORT, such as {CLIENT}head:10001.")
    return found


def usual_address() -> Address | str:
    """Return the address in RAY_ADDRESS, ``local`` or ``auto``; UsageError for another value."""
    text = os.environ.get(VARIABLE, "").strip() or AUTO
    if text in (LOCAL, AUTO):
        return text
    found = _parse(text.removeprefix(CLIENT), client=text.startswith(CLIENT), variable=VARIABLE)
    if not found:
        told = f"{VARIABLE}: '{text}' is not an address of a Ray cluster."
        raise UsageError(f"{told} Set it to HOST:PORT, {CLIENT}HOST:PORT, {AUTO} or {LOCAL}.")
    return found


def address_here(notify: Callable[[str], None]) -> Address | None:
    """Return the address of the cluster that `ray start` has started here; None without answer.

    ``notify`` is told where another user could have written the address: their cluster, which could
    run any code here, is not used.
    """
    path = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), "ray", "ray_current_cluster")
    with suppress(OSError, UnicodeError, UnfitError):
        if weakness := weakness_along(path):
            told = f"the Ray cluster of {path} is not joined: {weakness}."
            notify(f"{told} Set {VARIABLE}=HOST:PORT to join a cluster")
            return None
        if found := _parse(read_bytes(path, 300).decode().strip(), client=False):
            found.expect_answer()
            return found
    return None


def _parse(text: str, *, client: bool, variable: str = "") -> Address | None:
    match = _HOST_AND_PORT.fullmatch(text)
    if not match or not 0 < int(match[2]) < 2**16:
        return None
    return Address(match[1], int(match[2]), client, variable)


class RayCluster:
    """A :class:`losscli.judge.farm.Cluster` that this process joins or starts, until closed."""

    def __init__(
        self,
        address: Address | str | None = None,
        *,
        workers: int | None = None,
        notify: Callable[[str], None] = lambda note: None,
    ) -> None:
        """``workers``: cores of a new cluster. ``notify`` is told of one that is not joined."""
        self._address = usual_address() if address is None else address
        self._until_closed = ExitStack()
        self._workers, self._memory, self._notify = workers, 0.0, notify
        self._ray: Any = None
        self._task: Any = None

    def open(self) -> None:
        ray = self._ray = _usable_ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        logging.getLogger("ray").setLevel(logging.ERROR)
        worker: Any = sys.modules.get("ray._private.worker")
        if before := getattr(worker, "print_to_stdstream", None):
            # Ray would print each lost worker: standard output may be for verdicts.
            worker.print_to_stdstream = lambda *_, **__: None
            self._until_closed.callback(setattr, worker, "print_to_stdstream", before)
        join = partial(ray.init, logging_level=logging.ERROR, log_to_driver=False)
        if isinstance(self._address, Address):
            self._address.expect_answer()
            _join(f"Ray at {self._address}", partial(join, address=self._address.text))
        elif self._address == AUTO and (here := address_here(self._notify)):
            # For `auto`, Ray itself would search the processes of all users for an address. Only
            # then would it take this user's token by itself.
            with suppress(ImportError, AttributeError):  # an earlier Ray has none
                found = import_module("ray._private.authentication.authentication_token_setup")
                found.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
            _join("Ray on this machine", partial(join, address=here.text))
        else:
            # Sources and verdicts are small.
            own = {"num_cpus": self._workers, "object_store_memory": 2**28}
            start = partial(join, address=LOCAL, include_dashboard=False, **own)
            before = signal.getsignal(signal.SIGTERM)  # which Ray replaces
            try:
                _told("Ray on this machine", start)  # in no thread: what it starts ends with it
            finally:
                if threading.current_thread() is threading.main_thread():
                    signal.signal(signal.SIGTERM, before)
        self._task = self._ray.remote(_judge_on_node())

    def room(self, without: Collection[str]) -> Room:
        nodes = [n for n in self._ray.nodes() if n["Alive"] and n["NodeID"] not in without]
        has = [node["Resources"] for node in nodes if node["Resources"].get("CPU", 0) >= 1]
        cpus, gpus = (int(sum(each.get(kind, 0) for each in has)) for kind in ("CPU", "GPU"))
        self._memory = max((each.get("memory", 0) for each in has), default=0)
        return Room(len(has), cpus, gpus)

    def start(self, order: Order, *, gpu_share: float, without: Collection[str]) -> object:
        options: dict[str, object] = {
            "num_cpus": 1,
            "num_gpus": gpu_share,
            "memory": int(min(WORKER_BYTES, self._memory)),  # else a small machine never has room
            "max_retries": 0,  # the farm knows why a job was lost
            "scheduling_strategy": "SPREAD",
        }
        if without:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(without))})"}
        return self._task.options(**options).remote(order.to_json())

    def finished(self, tasks: Sequence[object], seconds: float) -> Sequence[object]:
        ready: list[object] = self._ray.wait(list(tasks), timeout=seconds)[0]
        return ready

    def answer(self, task: object) -> NodeAnswer:
        errors = self._ray.exceptions
        try:
            return read_answer(self._ray.get(task))
        except errors.RayTaskError:
            raise  # an error of losscli itself
        except errors.RayError as error:
            of_node = isinstance(error, errors.NodeDiedError)
            raise LostError(first_line(error), node=of_node) from None

    def close(self, tasks: Iterable[object]) -> None:
        if self._ray is None:
            return
        with suppress(Exception):  # the cluster itself may be lost
            for task in tasks:
                self._ray.cancel(task, force=True)
        with suppress(Exception), self._until_closed:  # an earlier error is the one to report
            self._ray.shutdown()


def _judge_on_node() -> Callable[[str], bytes]:
    """Return the function that nodes run, as code: a node without losscli has to report that."""

    def judge(order: str) -> bytes:
        import json
        import platform

        import ray

        try:
            from losscli.judge.on_node import answer_to

            said = answer_to(order)
        except ImportError as error:
            said = {"why": f"it has no losscli such as this one: {error}"}
        node = ray.get_runtime_context().get_node_id()
        return json.dumps({"node": node, "name": platform.node(), **said}).encode()

    return judge


def _usable_ray() -> Any:
    """Return the module of Ray; UnfitError if it is missing or another module has its name."""
    ray = None
    try:
        ray = import_module("ray")
        _ = ray.init, ray.remote, ray.shutdown
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "ray":
            text = "--on ray needs Ray, which is not installed here: pip install 'losscli[ray]'."
            raise UnfitError(text) from None
        path = getattr(ray, "__file__", None) or next(iter(getattr(ray, "__path__", ())), "")
        where = f" {path} is what Python imports." if path else ""
        raise UnfitError(
            f"--on ray needs Ray, and `import ray` finds nothing that works: {error}.{where} "
            "Install Ray with pip install 'losscli[ray]', and remove what hides it."
        ) from None
    return ray


def _join(what: str, action: Callable[[], object]) -> None:
    """Join a cluster; UnfitError if that fails or takes too long."""
    if not done_within(JOIN_SECONDS, partial(_told, what, action)):
        told = f"{what} did not respond within {JOIN_SECONDS:g} s. Is it a Ray cluster?"
        raise UnfitError(f"{told} One that asks for a token is joined with RAY_AUTH_MODE=token.")


def _told(what: str, action: Callable[[], object]) -> None:
    """Turn Ray's errors into UnfitError."""
    try:
        action()
    except Exception as error:
        why = first_line(error) or type(error).__name__
        raise UnfitError(f"{what} cannot be used: {why}") from None


def done_within(seconds: float, action: Callable[[], object]) -> bool:
    """Tell whether an action ended in time; a slower one goes on in its thread."""
    ended: Future[object] = Future()

    def act() -> None:
        try:
            ended.set_result(action())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=act, daemon=True).start()
    if not wait([ended], seconds).done:
        return False
    ended.result()
    return True
