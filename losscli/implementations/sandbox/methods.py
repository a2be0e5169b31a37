"""The methods of a subject that can be asked for in another process, with their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from torch import Tensor

from losscli.axes import GradOutput, PassName
from losscli.cases import Case
from losscli.implementations.call_data import (
    INCOMING_GRADIENT,
    Answer,
    Call,
    Curvature,
    Operands,
)

Gradients = dict[str, Tensor | None]


class HeadData(msgspec.Struct):
    """One of several losses that make one."""

    case: Case
    call: Call
    weight: float


class ReplayData(msgspec.Struct):
    """A recording that a worker keeps, to be replayed."""

    recording: int
    call: Call
    """That was recorded: what the judge has changed in its operands shows in the replay."""
    contents: Operands | None = None


class Turn(msgspec.Struct):
    """What a stream does next: a call, or a replay."""

    call: Call | None = None
    replay: ReplayData | None = None


class TimedData(msgspec.Struct):
    """A pass to be timed."""

    pass_: PassName
    operands: Operands
    grad_output: GradOutput
    evicts: bool
    captured: bool


class Flip(msgspec.Struct):
    """A change of the prediction between samples: its rows from start to stop are turned."""

    start: int
    stop: int


class WarmData(msgspec.Struct):
    """What a warm-up has measured."""

    repeats: int
    host_seconds: float
    peak_extra_bytes: int | None = None


class Samples(msgspec.Struct):
    """The seconds of samples, and the answer of one of them."""

    seconds: list[float]
    loss: Tensor | None
    gradient: Tensor | None
    incoming: float


class InputFacts(msgspec.Struct):
    """A tensor that a file's ``get_inputs`` gives."""

    shape: list[int]
    dtype: str


ValueKind = Literal[
    "signs", "bits", "probabilities", "log_probabilities", "unit", "not_negative", "any"
]
"""What floating values are like: all -1 or 1; all 0 or 1; rows that sum to one, or whose
exponentials do; all in [0, 1]; none negative; anything."""


class ArgumentFacts(msgspec.Struct):
    """What an argument that ``get_inputs`` gives is like: of a tensor no contents."""

    shape: list[int] | None = None
    """None for what is no tensor."""
    dtype: str = ""
    kind: ValueKind = "any"
    low: int = 0
    """The smallest value of integers."""
    high: int = 0
    """The largest value of integers."""
    plain: bool | int | float | str | None = None
    """What is no tensor."""


class Argument(msgspec.Struct):
    """An argument of a module: a tensor, or plain data."""

    tensor: Tensor | None = None
    plain: bool | int | float | str | None = None


class ModuleCall(msgspec.Struct):
    """A call of a module."""

    arguments: list[Argument]
    grad_output: Tensor | None = None
    """The incoming gradient; without one no gradients are asked for."""
    dtype: str = ""
    """What the module and its floating arguments are cast to; empty to leave them as they are."""


class ModuleAnswer(msgspec.Struct):
    """The result of a call of a module, and gradients by the name of what they are of."""

    output: Tensor
    gradients: dict[str, Tensor | None]
    trains: bool = True
    """Whether the result could be differentiated, where that was asked for."""


class Patch(msgspec.Struct):
    """New contents for some rows of an argument, before a sample."""

    argument: int
    start: int
    rows: Tensor


class ModuleSamples(msgspec.Struct):
    """The seconds of samples, and the answer of one of them."""

    seconds: list[float]
    answer: ModuleAnswer | None


METHODS: dict[str, tuple[Any, Any]] = {
    "bound": (tuple[()], None),
    "loss": (tuple[Operands, tuple[str, ...]], Tensor),
    "answer": (tuple[Call], Answer),
    "retained": (tuple[Call, list[Tensor]], list[Answer]),
    "accumulated": (tuple[Call, dict[str, Tensor], int], Gradients),
    "second_derivatives": (tuple[Curvature], dict[str, Tensor | None]),
    "joint_gradients": (tuple[list[HeadData]], list[Gradients]),
    "shared_memory": (tuple[Call], tuple[str, str] | None),
    "poisoned": (tuple[Call, int], Answer),
    "growth": (tuple[Call], int),
    "extra_bytes": (tuple[Call], int),
    "changed": (tuple[Call, str, Tensor], Answer),
    "backward_replays": (tuple[Call, list[Tensor]], list[Answer]),
    "graphed": (tuple[Call, list[Tensor]], list[Answer]),
    "on_streams": (tuple[list[list[Turn]]], list[list[Answer]]),
    "record": (tuple[list[Call]], list[int]),
    "replay": (tuple[ReplayData], Answer),
    "forget": (tuple[()], None),
    "timed": (tuple[TimedData], Samples),
    "warm_up": (tuple[()], WarmData),
    "samples": (tuple[list[Flip], int], Samples),
    "looped": (tuple[int], None),
    "changes": (tuple[()], list[str]),
    "inputs": (tuple[()], list[InputFacts]),
    "leftovers": (tuple[()], list[str]),
    "argument_facts": (tuple[()], list[ArgumentFacts]),
    "module_made": (tuple[str, int], dict[str, Tensor]),
    "module_loaded": (tuple[str, dict[str, Tensor]], None),
    "module_answer": (tuple[ModuleCall], ModuleAnswer),
    "module_timed": (tuple[ModuleCall], None),
    "module_warm_up": (tuple[()], WarmData),
    "module_samples": (tuple[list[Patch], int], ModuleSamples),
    "module_looped": (tuple[int], None),
}
"""By name: the types of the arguments and of what is returned."""

KEEPS_OPERANDS = ("timed",)
"""After which the operands are the worker's own, whose changes are of no concern to the judge."""


def _answers(answer: Answer, call: Call, *_: Any) -> bool:
    return {*answer.gradients} == {*call.wrt}


def _one_each(answers: list[Answer], call: Call, incoming: Sequence[Tensor]) -> bool:
    return len(answers) == len(incoming) and all(_answers(each, call) for each in answers)


def _all_turns(answers: list[list[Answer]], queues: list[list[Turn]]) -> bool:
    if [len(done) for done in answers] != [len(queue) for queue in queues]:
        return False
    return all(
        _answers(answer, call)
        for done, queue in zip(answers, queues, strict=True)
        for answer, turn in zip(done, queue, strict=True)
        if (call := turn.call or (turn.replay and turn.replay.call))
    )


def _all_heads(gradients: list[Gradients], heads: list[HeadData]) -> bool:
    return [{*found} for found in gradients] == [{*head.call.wrt} for head in heads]


def _are_seconds(seconds: list[float], count: int) -> bool:
    return len(seconds) == count and all(0 < each < math.inf for each in seconds)


FITS: dict[str, Callable[..., bool]] = {
    "answer": _answers,
    "poisoned": _answers,
    "changed": _answers,
    "retained": _one_each,
    "backward_replays": _one_each,
    "graphed": _one_each,
    "on_streams": _all_turns,
    "replay": lambda answer, replay: _answers(answer, replay.call),
    "accumulated": lambda gradients, call, *_: {*gradients} == {*call.wrt},
    "joint_gradients": _all_heads,
    "second_derivatives": lambda found, asked: {*found} == {*asked.toward, INCOMING_GRADIENT},
    "record": lambda numbers, calls: len(numbers) == len(calls),
    "timed": lambda found, _: found.loss is not None,
    "samples": lambda found, flips, keep: (
        _are_seconds(found.seconds, len(flips)) and (keep < 0 or found.loss is not None)
    ),
    "module_samples": lambda found, patches, keep: (
        _are_seconds(found.seconds, len(patches)) and (keep < 0 or found.answer is not None)
    ),
}
"""By method: whether what is returned, whose types are right, can be the answer to the arguments.

What is in a worker's answer may be forged, also what a correct server could not send.
"""
