"""Starts and ends processes, which end with their parent."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from losscli.processes.channel import Channel

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5
FALLBACK_VARIABLE = "LOSSCLI_FALLBACK"
"""See :mod:`losscli.operators.fallback`."""


class Process(subprocess.Popen[bytes]):
    """A process with a channel as its standard input; a context that kills it and its children."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str] | None = None,
        *,
        errors: int | None = None,
    ) -> None:
        """``errors`` is a descriptor instead of standard error."""
        if errors is None:  # closed at the start (`2>&-`), another file may have its number
            errors = subprocess.DEVNULL if sys.__stderr__ is None else 2
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                super().__init__(
                    command,
                    stdin=theirs.fileno(),
                    stdout=errors,
                    stderr=errors,
                    env=_environment(os.environ if environ is None else environ),
                    start_new_session=True,  # so Ctrl-C reaches only the command
                )
            except OSError:
                ours.close()
                raise
        _running.add(self)
        self.channel = Channel(ours, self.go_on)

    def __exit__(self, *_: object) -> None:
        self.close()

    def go_on(self) -> None:
        """Resume the process, in case it is stopped."""
        self.send_signal(signal.SIGCONT)

    def end(self, seconds: float = 0.0) -> int:
        """Wait, then kill the process and its children; return its exit code or negative signal."""
        try:
            code = self.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.wait()
        _running.discard(self)
        return code

    def kill(self) -> None:
        """Kill the process and its children; do not wait."""
        with contextlib.suppress(ProcessLookupError):  # another thread has seen its end
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, and close its channel."""
        self.end()
        self.channel.socket.close()


_running: set[Process] = set()


def kill_all() -> None:
    """Kill every running process."""
    for process in tuple(_running):
        process.kill()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    # ``-m`` imports no file of the current folder.
    found = {**environ, "PYTHONSAFEPATH": "1", FALLBACK_VARIABLE: "error"}
    if root not in sys.path[1:]:  # losscli is in that folder, and installed nowhere
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), root]))
    return found


def how_ended(code: int) -> str:
    """Describe how a process ended, from its exit code or negative signal."""
    if code >= 0:
        return f"with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"


@contextlib.contextmanager
def to_parent(grace: float = 0.0) -> Iterator[Channel]:
    """Yield the channel to the parent; standard input is empty, output goes to standard error.

    If the parent ends, this process is killed, or gets SIGTERM and ``grace`` seconds.
    """
    end_with_parent(gently=grace > 0)
    if grace:
        threading.Thread(target=_watch, args=(os.getppid(), grace), daemon=True).start()
    end = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout = sys.stderr
    with Channel(end) as channel, contextlib.suppress(BrokenPipeError):
        yield channel


def end_with_parent(*, gently: bool = False) -> None:
    """Have Linux kill this process, or send SIGTERM (``gently``), when its parent thread ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM if gently else signal.SIGKILL)


def _watch(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)
