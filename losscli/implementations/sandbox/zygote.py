"""The process that forks workers; it imports torch but never third-party code.

For each message and its descriptors, it forks a keeper, which leaves the judge's namespaces and
forks the worker. The keeper reports how the worker ended and ends all remaining processes. Each
dies with its parent.
"""

import atexit
import contextlib
import os
import select
import signal
import site
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from losscli.errors import UnfitError
from losscli.implementations.sandbox.confinement import Walls, Wanted, environment, kernel, limits
from losscli.machine.own_processes import ancestors, children
from losscli.processes import Channel, Process, end_with_parent, to_parent

_PR_SET_CHILD_SUBREAPER = 36
START_SECONDS = 120.0
IDLE_SECONDS = 0.5
"""After so long without a request, the process imports what only some workers need."""
DESCRIPTORS = 5
"""Channel, log, status, operands and results."""


class Zygote(Process):
    """The judge's side of the process that forks workers."""

    def __init__(self) -> None:
        environ = {**environment.of_workers(os.environ), "PYTHONUNBUFFERED": "1"}
        if site.getusersitepackages() in sys.path:
            environ["PYTHONUSERBASE"] = site.getuserbase()
        super().__init__([sys.executable, "-m", __name__], environ)
        self._lock = threading.Lock()
        with contextlib.suppress(TimeoutError):
            if self.channel.receive(START_SECONDS):
                return
        self.close()
        raise UnfitError("the process that starts workers could not be started.")

    def fork(self, wanted: Wanted, descriptors: Sequence[int]) -> int | None:
        """Fork a worker and return its keeper's id; None if the process has ended."""
        try:
            message = msgspec.json.encode(wanted)
        except UnicodeEncodeError:
            raise UnfitError("a path or a variable has bytes that are not UTF-8.") from None
        with contextlib.suppress(OSError), self._lock:
            self.go_on()
            socket.send_fds(self.channel.socket, [message], descriptors)
            if pid := self.channel.receive(START_SECONDS):
                return int(pid)
        self.close()
        return None


_zygotes: list[Zygote] = []


def running() -> Zygote:
    """Return the running zygote, perhaps a new one."""
    if not _zygotes or _zygotes[-1].poll() is not None:
        _zygotes.append(Zygote())
        atexit.register(_zygotes[-1].close)
    return _zygotes[-1]


def is_of_a_worker(pid: int) -> bool:
    """Tell whether one of our workers started a process."""
    return any(each.pid in ancestors(pid) for each in _zygotes)


def fork(wanted: Wanted, descriptors: Sequence[int]) -> tuple[Zygote, int]:
    """Fork a worker; return its zygote and its keeper's id."""
    for _ in range(2):
        parent = running()
        if keeper := parent.fork(wanted, descriptors):
            return parent, keeper
    raise UnfitError("the process that starts workers has ended twice.")


def main() -> None:
    """Serve the judge until it ends."""
    environment.forget_start()
    judge = os.getppid()
    with to_parent() as channel:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps keepers
        import torch
        import torch.fx.experimental.symbolic_shapes  # what the first backward pass imports, 0.7 s

        import losscli.functional  # noqa: F401 - its operators, for a file that builds on them
        from losscli.implementations.sandbox import server  # noqa: F401

        torch.empty(1)
        channel.send(b"ready")
        prepared = False
        while True:
            if not prepared and not select.select([channel.socket], [], [], IDLE_SECONDS)[0]:
                import torch._dynamo  # what many second derivatives import in each worker, 1 s

                prepared = True
            data, descriptors, _, _ = socket.recv_fds(channel.socket, 2**20, DESCRIPTORS)
            if not data:
                return
            zygote = os.getpid()
            pid = os.fork()
            if pid == 0:
                channel.socket.close()
                walls = Walls(msgspec.json.decode(data, type=Wanted))
                _keep(walls, descriptors, zygote, prefix=f"{judge}-")
            channel.send(b"%d" % pid)
            for descriptor in descriptors:
                os.close(descriptor)


def _keep(walls: Walls, descriptors: list[int], zygote: int, prefix: str) -> NoReturn:
    status = os.fdopen(descriptors[2], "wb", buffering=0)
    wanted, code = walls.wanted, 1
    try:
        end_with_parent(gently=True)  # what a worker without a namespace has left ends first
        if os.getppid() != zygote:
            os._exit(1)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        kernel.call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # It also counts files in memory.
        together = limits.make_group(2 * wanted.memory_bytes, wanted.processes)
        os.makedirs(wanted.scratch, mode=0o700, exist_ok=True)
        walls.leave()
        keeper = os.getpid()
        worker = os.fork()
        if worker == 0:
            os.close(status.fileno())
            if together:
                with contextlib.suppress(OSError):  # then this process alone counts
                    together.enter()
            _work(walls, descriptors, keeper, prefix)
        signal.signal(signal.SIGTERM, lambda *_: _kill(worker))
        for descriptor in (*descriptors[:2], *descriptors[3:]):
            os.close(descriptor)
        ended = limits.wait(worker, limits.Watch(wanted.memory_bytes, wanted.processes))
        _end_descendants()
        if together:
            ended = limits.TOO_MUCH_MEMORY if together.ran_out else ended
            together.remove()
        if os.getppid() == zygote:  # else it was not the worker's own end
            with contextlib.suppress(BrokenPipeError):  # the judge has ended
                status.write(f"{ended}\n".encode())
        code = 0
    except Exception:  # of losscli's own
        traceback.print_exc()
    finally:
        os._exit(code)


def _work(walls: Walls, descriptors: list[int], keeper: int, prefix: str) -> NoReturn:
    channel, log, _, operands, results = descriptors
    code = 70
    try:
        end_with_parent()
        os.setsid()  # a signal to its group would reach the keeper, from any namespace
        if not walls.apart and os.getppid() != keeper:
            os._exit(1)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.__stdout__
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close_in(walls, channel, prefix)
        for open_file in map(int, os.listdir("/proc/self/fd")):  # some would tell about the judge
            if open_file not in {0, 1, 2, channel, operands, results}:
                with contextlib.suppress(OSError):  # that of the folder itself
                    os.close(open_file)
        from losscli.implementations.sandbox import server

        server.serve(channel, operands, results, walls)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _close_in(walls: Walls, channel: int, prefix: str) -> None:
    """Isolate the worker; report why if it cannot run."""
    from losscli.implementations.sandbox import wire

    try:
        walls.furnish(prefix)
        os.environ.clear()
        os.environ.update(environment.of_candidate(walls.wanted.environ, walls.scratch))
        for name in ("home", "tmp"):
            os.makedirs(f"{walls.scratch}/{name}", mode=0o700, exist_ok=True)
        tempfile.tempdir = None
        os.chdir(walls.scratch)
        walls.give_up()
    except Exception as error:
        wire.send(Channel(socket.socket(fileno=channel)), wire.Raised(str(error), "error"))
        raise


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(process, signal.SIGKILL)


def _end_descendants() -> None:
    """Kill what the worker left, as a process namespace does by itself."""
    while left := children(os.getpid()):  # orphans of the worker belong to this process
        for child in left:
            _kill(child)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass


if __name__ == "__main__":
    main()
