"""Runs `losscli bench` with an implementation that logs its cases, and pauses at a chosen place.

``python killable.py LOG WAIT ARGUMENT...``: each size that `theirs` computes is a line of LOG. At
WAIT, one of these sizes or a phase of PHASES, the process creates the file LOG.waiting and waits
until it is killed.

A process takes seconds to import torch. :class:`Forked` is one that has nothing left to import.
"""

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NoReturn

from losscli.bench import limit
from losscli.cli.main import run
from losscli.errors import UnfitError
from losscli.implementations import IMPLEMENTATIONS, Implementation

PHASES = {
    "machine": ("losscli.machine.description", "describe"),
    "limit": ("losscli.bench.runner", "needs_eviction"),
    "inputs": ("losscli.bench.runner", "make_inputs"),
    "sampling": ("losscli.bench.runner", "interleave"),
    "report": ("losscli.render.records", "write"),
}
"""A function that each phase calls."""


def refuse(device):
    raise UnfitError("there is no compiler.")


def main(log, wait, *arguments):
    def pause(*given, **named):
        Path(f"{log}.waiting").touch()
        for _ in range(6000):  # a signal may come to another thread, and end no sleep
            time.sleep(0.1)

    def mse(prediction, target):
        size = prediction.numel()
        with open(log, "a") as file:
            file.write(f"{size}\n")
        if str(size) == wait:
            pause()
        return ((prediction - target) ** 2).mean()

    if wait in PHASES:
        module, name = PHASES[wait]
        setattr(importlib.import_module(module), name, pause)
    IMPLEMENTATIONS["theirs"] = Implementation("theirs", "", lambda case: mse)
    limit.Limits.__init__.__defaults__ = (refuse,)
    return run(["bench", "--device", "cpu", *arguments])


def end(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def server() -> ForkServerContext:
    """Return what forks a process that has imported all that a bench does, and has no threads."""
    context = multiprocessing.get_context("forkserver")
    modules = ["torch.fx.experimental.symbolic_shapes", __name__, "pytest"]
    context.set_forkserver_preload(modules + [module for module, _ in PHASES.values()])
    return context


class Forked:
    """A process like that of the command line; it has of subprocess.Popen what tests ask for."""

    def __init__(
        self, server: ForkServerContext, arguments: list[str], environ: Mapping[str, str]
    ) -> None:
        self._told, told = server.Pipe(duplex=False)
        self._process = server.Process(target=_forked, args=(told, arguments, environ), daemon=True)
        self._process.start()
        told.close()

    def poll(self) -> int | None:
        return self._process.exitcode

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait for the end; what was told is less than a pipe holds."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still there after {timeout} s"
        with open(self._told.fileno(), closefd=False) as file:
            return None, file.read()


def _forked(told: Connection, arguments: list[str], environ: Mapping[str, str]) -> NoReturn:
    os.dup2(told.fileno(), sys.stderr.fileno())
    told.close()
    os.environ.update(environ)
    end(main(*arguments))


if __name__ == "__main__":
    end(main(*sys.argv[1:]))
