"""The methods of a subject that can be asked for in another process, with their types."""

from __future__ import annotations

from typing import Any

import msgspec
from torch import Tensor

from losscli.axes import GradOutput, PassName
from losscli.cases import Case, OperandName
from losscli.implementations.call_data import Answer, Call, Curvature

Gradients = dict[OperandName, Tensor | None]


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
    contents: tuple[Tensor, Tensor] | None = None


class Turn(msgspec.Struct):
    """What a stream does next: a call, or a replay."""

    call: Call | None = None
    replay: ReplayData | None = None


class TimedData(msgspec.Struct):
    """A pass to be timed."""

    pass_: PassName
    input: Tensor
    target: Tensor
    grad_output: GradOutput
    evicts: bool
    captured: bool


class Flip(msgspec.Struct):
    """A change of the prediction between samples: the signs of its elements from start to stop."""

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


METHODS: dict[str, tuple[Any, Any]] = {
    "bound": (tuple[()], None),
    "loss": (tuple[Tensor, Tensor, tuple[OperandName, ...]], Tensor),
    "answer": (tuple[Call], Answer),
    "retained": (tuple[Call, list[Tensor]], list[Answer]),
    "accumulated": (tuple[Call, dict[OperandName, Tensor], int], Gradients),
    "second_derivatives": (tuple[Curvature], dict[str, Tensor | None]),
    "joint_gradients": (tuple[list[HeadData]], list[Gradients]),
    "shared_memory": (tuple[Call], tuple[str, str] | None),
    "poisoned": (tuple[Call, int], Answer),
    "growth": (tuple[Call], int),
    "extra_bytes": (tuple[Call], int),
    "changed": (tuple[Call, OperandName, Tensor], Answer),
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
}
"""By name: the types of the arguments and of what is returned."""
