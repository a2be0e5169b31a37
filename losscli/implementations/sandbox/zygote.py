"""The process that forks workers: it has imported torch, and runs no code of others.

It gets one line of JSON a worker from the judge, with the file descriptors that the worker has. For
each it forks a keeper, which leaves the judge's namespaces and forks the worker. The keeper waits
for the worker, says how it ended, and ends every process that it left. Each dies with its parent,
so that nothing outlives a judge that is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
from typing import Any, NoReturn

from losscli.implementations.sandbox import confinement
from losscli.processes import end_with_parent, to_parent

IDLE_SECONDS = 0.5
"""Without a question for so long, the process imports what the first worker need not wait for."""
DESCRIPTORS = 5
"""Channel, log, status, operands and results, in this order."""


def main() -> None:
    """Serve the judge until it ends."""
    confinement.forget_start()
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
                _keep(json.loads(data), descriptors, zygote)
            channel.send(b"%d" % pid)
            for descriptor in descriptors:
                os.close(descriptor)


def _keep(wanted: dict[str, Any], descriptors: list[int], zygote: int) -> NoReturn:
    """Be the keeper of one worker."""
    status = os.fdopen(descriptors[2], "wb", buffering=0)
    code = 1
    try:
        end_with_parent()
        if os.getppid() != zygote:
            os._exit(1)
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        confinement._libc().prctl(confinement.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        reached = ["session", *confinement.unshare()]
        os.makedirs(wanted["scratch"], mode=0o700, exist_ok=True)
        keeper = os.getpid()
        worker = os.fork()
        if worker == 0:
            os.close(status.fileno())
            _work(wanted, descriptors, reached, keeper)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGKILL))
        for descriptor in (*descriptors[:2], *descriptors[3:]):
            os.close(descriptor)
        _, ended = os.waitpid(worker, 0)
        _end_descendants()
        status.write(f"{os.waitstatus_to_exitcode(ended)}\n".encode())
        code = 0
    finally:
        os._exit(code)


def _work(wanted: dict[str, Any], descriptors: list[int], reached: list[str], keeper: int) -> None:
    """Be the worker: close everything that it needs not, and serve."""
    code = 70
    try:
        channel, log, _, operands, results = descriptors
        end_with_parent()
        os.setsid()  # a signal to its group would reach the keeper, from any namespace
        scratch = wanted["scratch"]
        if "processes" in reached:
            scratch = confinement.private_directory(scratch)
            reached += confinement.mount_private(scratch)
        elif os.getppid() != keeper:
            os._exit(1)
        if "temporary files" not in reached:
            scratch = tempfile.mkdtemp(prefix=f"{wanted['judge']}-", dir=wanted["scratch"])
        os.environ.clear()
        os.environ.update(confinement.environment(scratch, wanted["environ"]))
        for name in ("home", "tmp"):
            os.makedirs(f"{scratch}/{name}", mode=0o700, exist_ok=True)
        tempfile.tempdir = None
        os.chdir(scratch)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        sys.stdout = sys.__stdout__
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        reached += confinement.restrict_writes(scratch, wanted["device"])
        reached += confinement.limit_resources(wanted["memory_bytes"], wanted["device"])
        from losscli.implementations.sandbox import server

        server.serve(channel, operands, results, wanted["device"], scratch, tuple(reached))
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _end_descendants() -> None:
    """Kill what the worker has left: in a process namespace the kernel has done so already."""
    while True:
        children = _children()
        if not children:
            return
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass


def _children() -> list[int]:
    """Return the children of this process, to which orphans of the worker belong."""
    own = os.getpid()
    try:
        with open(f"/proc/{own}/task/{own}/children") as listed:
            return [int(pid) for pid in listed.read().split()]
    except OSError:
        return []


if __name__ == "__main__":
    main()
