"""The worker's server; third-party code shares its process, so the judge trusts no response."""

import os
import socket
from collections.abc import Iterator
from functools import cache, reduce
from operator import or_
from subprocess import CalledProcessError
from typing import Any

import msgspec

from losscli.build.diagnosis import placed_error
from losscli.errors import BuildError, first_line, text_of
from losscli.implementations import gpu_requests, memory_requests, requests
from losscli.implementations.errors import NoSecondDerivativesError, SubjectError
from losscli.implementations.languages import Tuning
from losscli.implementations.requests import Request
from losscli.implementations.sandbox import timed_requests, wire, worker_requests
from losscli.implementations.sandbox.confinement import Walls
from losscli.implementations.sandbox.worker_requests import Load, State, WorkerRequest
from losscli.implementations.source import Source
from losscli.machine.devices import is_broken
from losscli.machine.memory import is_out_of_memory
from losscli.processes import Channel


def serve(channel: int, operands: int, results: int, walls: Walls) -> None:
    """Answer requests until the judge hangs up."""
    with Channel(socket.socket(fileno=channel)) as connection:
        wire.send(connection, wire.Ready(walls.reached, walls.scratch))
        tuning = Tuning(lambda: wire.send(connection, wire.Tunes(state.number)))
        state = State(walls.wanted.device, walls.scratch, tuning)
        tensors, own = wire.WorkerEnd(operands, results), os.getpid()
        while (data := connection.receive()) is not None:
            reply = _reply(msgspec.json.decode(data, type=wire.Asked), tensors, state)
            if os.getpid() != own:
                wire.send(connection, wire.Raised("a call returned in a second process", "forked"))
                os._exit(1)
            wire.send(connection, reply)


def _reply(asked: wire.Asked, tensors: wire.WorkerEnd, state: State) -> wire.Reply:
    state.number = asked.number
    state.tuning.watch()
    request: Request[Any] | None = None
    try:
        tensors.read(asked.storages)
        request = tensors.decode(asked.request, _any_request())
        # The operands have started CUDA.
        state.before = state.before.completed()
        state.local = None  # one that is bound anew is freed first
        if case := asked.model or asked.case:
            state.local = state.subject(case, asked.generation, asked.mends)
        if request.keeps_operands:
            tensors.pinned |= {stored.key for stored in asked.storages}
        if isinstance(request, WorkerRequest):
            value = request.perform_at(state)
        else:
            assert state.local  # only requests to the worker itself come without a case
            value = state.local.send(request)
        raw = tensors.encode(list(value) if isinstance(value, Iterator) else value)
        if request.drops_operands:
            tensors.pinned.clear()
        changed = [] if request.owns_operands else tensors.write_back()
        return wire.Replied(asked.number, raw, changed)
    except Exception as error:
        raised = _raised(error, isinstance(request, Load), state.file)
        raised.broke = is_broken(state.device)
        raised.number = asked.number
        return raised


@cache
def _any_request() -> Any:
    modules = requests, memory_requests, gpu_requests, worker_requests, timed_requests
    known = (each for module in modules for each in vars(module).values())
    kinds = {each for each in known if isinstance(each, type) and issubclass(each, Request)}
    return reduce(or_, (each for each in kinds if not each.__subclasses__()))


def _raised(error: Exception, loads: bool, file: Source) -> wire.Raised:
    text = first_line(error)
    if is_out_of_memory(error):
        return wire.Raised(text, "out_of_memory")
    if isinstance(error, NoSecondDerivativesError):
        return wire.Raised(text, "no_second_derivatives")
    cause = error.__cause__ if isinstance(error, SubjectError) else error
    if cause is not None and _is_of_compiler(cause):
        told = _first_error(cause, file.text, file.path.name)
        return wire.Raised(f"{type(cause).__name__}: {told}", "build")
    if loads:
        return wire.Raised(f"{type(error).__name__}: {_first_error(error)}", "raised")
    if isinstance(error, SubjectError):
        return wire.Raised(text, "raised", error.refused, error.code)
    # An error of losscli too: the file can raise one, so the judge would not believe it.
    return wire.Raised(f"raised {type(error).__name__}: {text}".rstrip(": "), "raised")


def _is_of_compiler(error: BaseException) -> bool:
    # Those of Triton and torch.compile, which may not be installed.
    named = ("CompilationError", "CppCompileError", "PTXASError")
    if isinstance(error, BuildError | CalledProcessError) or type(error).__name__ in named:
        return True
    cause = error.__cause__  # cpp_extension raises from what ended with an error
    return cause is not None and _is_of_compiler(cause)


def _first_error(error: BaseException, source: str = "", name: str = "") -> str:
    """Return the first error of a compiler or import; ``source`` is the text of a file."""
    lines = text_of(error).splitlines()
    wrong = [line for line in lines if "error:" in line or "Error:" in line]
    placed = placed_error(text_of(error), source, name)
    return placed or (wrong or lines or [type(error).__name__])[0].strip()
