"""Run what may crash or hang, such as ``import torch``, in a process that prints JSON."""

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from losscli.errors import UnfitError
from losscli.processes import Process, how_ended, to_parent

SECONDS = 120.0
"""The maximum time for an answer, such as importing torch from a slow network drive."""


class NoAnswerError(Exception):
    """The process ended without an answer; the message says why."""


def ask(question: str, *arguments: str) -> dict[str, Any]:
    """Ask a question in a separate process; NoAnswerError if it crashes, fails or times out."""
    command = [sys.executable, "-m", "losscli.doctor.questions", question, *arguments]
    with tempfile.TemporaryFile() as told, Process(command, errors=told.fileno()) as process:
        try:
            answer = process.channel.receive(SECONDS)
        except TimeoutError:
            raise NoAnswerError(f"no response within {SECONDS:g} s") from None
        if answer is not None:
            found: dict[str, Any] = json.loads(answer)
            return found
        if (code := process.end(SECONDS)) < 0:
            raise NoAnswerError(f"the process was ended {how_ended(code)}")
        told.seek(0)
        lines = told.read().decode(errors="replace").strip().splitlines()
        raise NoAnswerError(lines[-1] if lines else f"exit code {code}")


def _torch(asked: str) -> dict[str, Any]:
    from losscli.build.nvcc import present_capabilities
    from losscli.build.plan import installed_torch
    from losscli.machine.devices import resolve_device

    installed = installed_torch()
    import torch

    answer: dict[str, Any] = {**asdict(installed), "root": str(installed.root)}
    answer |= {"device": None, "unfit": "", "trouble": "", "capabilities": [], "uuid": ""}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            device = answer["device"] = resolve_device(asked)
            answer["capabilities"] = present_capabilities()
            if device != "cpu":
                answer["uuid"] = str(torch.cuda.get_device_properties(device).uuid)
            torch.ones(8, device=device).sum().item()
        except UnfitError as error:
            answer["unfit"] = str(error)
        except Exception as error:
            answer["trouble"] = f"{type(error).__name__}: {error}".splitlines()[0]
    answer["warnings"] = [str(each.message).strip() for each in told]
    return answer


def _driver() -> dict[str, Any]:
    from losscli.machine.devices import driver_cuda, find_gpus

    return {"cuda": driver_cuda(), "gpus": [asdict(gpu) for gpu in find_gpus()]}


def _conditions(device: str) -> dict[str, Any]:
    from losscli.bench.conditions import look_at

    return look_at(device).record()


def _isolation(scratch: str, device: str) -> dict[str, Any]:
    """Isolate a process as the judge does, as far as the kernel permits."""
    from losscli.implementations.sandbox.confinement import Walls, Wanted
    from losscli.machine.memory import free_bytes

    walls = Walls(Wanted(device, free_bytes("cpu") // 2, 1, scratch, {}, [], []))
    walls.leave()
    if child := os.fork():
        os.waitpid(child, 0)
        os._exit(1)
    # The child answers, which is the first process of its process namespace.
    try:
        walls.furnish("")
        walls.give_up()
    except Exception as error:
        return {"reached": walls.reached, "error": str(error)}
    return {"reached": walls.reached}


QUESTIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "torch": _torch,
    "driver": _driver,
    "conditions": _conditions,
    "isolation": _isolation,
}


if __name__ == "__main__":
    question, *arguments = sys.argv[1:]
    with to_parent() as channel:
        channel.send(json.dumps(QUESTIONS[question](*arguments)).encode())
        os._exit(0)  # a broken library may crash when it is unloaded
