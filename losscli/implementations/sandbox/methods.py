"""The methods of a subject that can be asked for in another process, with their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from losscli.cases.axes import GradOutput, PassName
from losscli.cases.case import Case
from losscli.cases.model_case import Argument
from losscli.implementations.call_data import (
    INCOMING_GRADIENT,
    Answer,
    Call,
    Curvature,
    Head,
    Operands,
    Replay,
)
from losscli.implementations.process_state import StateChange
from losscli.implementations.sandbox.builds import MOST_BYTES
from losscli.losses import Shape

Gradients = dict[str, Tensor | None]
_NAMES_BYTES = 2**20
"""What the names of compiled files may take beside their contents."""


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
    gradients: list[Tensor | None]
    incoming: float


def _answers(answer: Answer, call: Call, *_: Any) -> bool:
    return {*answer.gradients} == {*call.wrt}


def _one_of_each(answers: list[Answer], calls: Sequence[Call], *_: Any) -> bool:
    return len(answers) == len(calls) and all(map(_answers, answers, calls))


def _one_each(answers: list[Answer], call: Call, incoming: Sequence[Tensor]) -> bool:
    return len(answers) == len(incoming) and all(_answers(each, call) for each in answers)


def _all_requests(answers: list[list[Answer]], queues: Sequence[Sequence[Call | Replay]]) -> bool:
    if [len(done) for done in answers] != [len(queue) for queue in queues]:
        return False
    return all(
        _answers(answer, request.call if isinstance(request, Replay) else request)
        for done, queue in zip(answers, queues, strict=True)
        for answer, request in zip(done, queue, strict=True)
    )


def _all_heads(gradients: list[Gradients], heads: Sequence[Head]) -> bool:
    return [{*found} for found in gradients] == [{*head.call.wrt} for head in heads]


def _are_seconds(seconds: list[float], count: int) -> bool:
    return len(seconds) == count and all(0 < each < math.inf for each in seconds)


def _are_bytes(packed: Tensor) -> bool:
    fits = packed.dim() == 1 and packed.nbytes <= MOST_BYTES + _NAMES_BYTES
    return packed.device.type == "cpu" and packed.dtype == torch.uint8 and fits


class Method(NamedTuple):
    """What can be asked in another process."""

    arguments: Any
    """The type of the arguments, a tuple."""
    result: Any
    """The type of what is returned."""
    fits: Callable[..., bool] = lambda *_: True
    """Whether what is returned, whose types are right, can be the answer to the arguments.

    What is in a worker's answer may be forged, also what a correct server could not send."""
    takes_long: bool = False
    """Whether the worker may take as long as a build takes."""
    keeps_operands: bool = False
    """Whether the operands are the worker's own afterwards, whose changes are of no concern to the
    judge."""


METHODS: dict[str, Method] = {
    "tuned": Method(tuple[()], float, lambda seconds: 0 <= seconds < math.inf),
    "compiled": Method(tuple[()], Tensor, _are_bytes, takes_long=True),
    "bound": Method(tuple[()], None, takes_long=True),
    "loss": Method(tuple[Operands, tuple[str, ...]], Tensor),
    "answer": Method(tuple[Call], Answer, _answers),
    "retained": Method(tuple[Call, list[Tensor]], list[Answer], _one_each),
    "accumulated": Method(
        tuple[Call, dict[str, Tensor], int],
        Gradients,
        lambda gradients, call, *_: {*gradients} == {*call.wrt},
    ),
    "second_derivatives": Method(
        tuple[Curvature],
        Gradients,
        lambda found, asked: {*found} == {*asked.toward, INCOMING_GRADIENT},
    ),
    "joint_gradients": Method(tuple[list[Head]], list[Gradients], _all_heads),
    "shared_memory": Method(tuple[Call], tuple[str, str] | None),
    "poisoned": Method(tuple[Call, int], Answer, _answers),
    "growth": Method(tuple[Call], int),
    "extra_bytes": Method(tuple[Call], int),
    "changed": Method(tuple[Call, str, Tensor], Answer, _answers),
    "backward_replays": Method(tuple[Call, list[Tensor]], list[Answer], _one_each),
    "graphed": Method(tuple[Call, list[Tensor]], list[Answer], _one_each),
    "in_thread": Method(tuple[list[Call]], list[Answer], _one_of_each),
    "on_streams": Method(tuple[list[list[Call | Replay]]], list[list[Answer]], _all_requests),
    "record": Method(
        tuple[list[Call]], list[int], lambda numbers, calls: len(numbers) == len(calls)
    ),
    "replay": Method(tuple[Replay], Answer, lambda answer, replay: _answers(answer, replay.call)),
    "forget": Method(tuple[()], None),
    "timed": Method(
        tuple[TimedData],
        Samples,
        lambda found, _: found.loss is not None,
        takes_long=True,
        keeps_operands=True,
    ),
    "warm_up": Method(tuple[()], WarmData),
    "samples": Method(
        tuple[list[Flip], int],
        Samples,
        lambda found, flips, keep: (
            _are_seconds(found.seconds, len(flips)) and (keep < 0 or found.loss is not None)
        ),
    ),
    "looped": Method(tuple[int], None),
    "changes": Method(tuple[()], list[StateChange]),
    "inputs": Method(tuple[()], list[tuple[Shape, str]]),
    "unmarked": Method(tuple[list[Call], Case], list[Answer], _one_of_each, takes_long=True),
    "leftovers": Method(tuple[()], list[str]),
    "model_arguments": Method(tuple[()], list[Argument]),
    "model_state": Method(tuple[int], tuple[dict[str, Tensor], list[str]], takes_long=True),
}
"""The methods by name, which :class:`~losscli.implementations.remote.RemoteSubject` forwards."""
