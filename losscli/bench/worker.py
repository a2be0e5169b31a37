"""A process that measures for ``losscli bench``: reads tasks and writes results, as lines."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from typing import IO

import torch

from losscli.bench.protocol import Broken, Done, Message, Note, read_task, report, write_line
from losscli.bench.runner import Runner
from losscli.errors import LosscliError
from losscli.machine import allocator

_PR_SET_PDEATHSIG = 1


def main(device: str) -> None:
    """Serve the command on the other end of standard input and output until it closes them.

    Output that an implementation prints must not mix with the lines of the protocol: standard
    output becomes standard error.
    """
    with contextlib.suppress(OSError, AttributeError):  # Linux alone ends the children of the dead
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = sys.stderr
        with contextlib.suppress(BrokenPipeError):
            serve(device, requests, answers)


def serve(
    device: str, requests: Iterable[bytes], answers: IO[bytes], runner: Runner | None = None
) -> None:
    """Answer each line; ``runner`` is the machine's runner, or a test's fake."""

    def answer(message: Message) -> None:
        answers.write(write_line(message))
        answers.flush()

    runner = runner or Runner(device, notify=lambda note: answer(Note(note)))
    torch.ones((), requires_grad=True).backward(torch.ones(()))  # imports sympy, which takes long
    answer(Done())
    for line in requests:
        try:
            for found in runner.measure(read_task(line)):
                answer(report(found))
        except LosscliError as error:
            answer(Broken(str(error), error.exit_code))
        except BrokenPipeError:
            raise
        except Exception as error:
            answer(Broken(f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
        else:
            _give_back(device)
            answer(Done())


def _give_back(device: str) -> None:
    """Free all memory while other processes measure."""
    if device != "cpu":
        torch.cuda.empty_cache()
    allocator.give_back()
