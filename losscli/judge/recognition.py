"""Finds out which loss a ``Model`` computes, and on which shapes a file wants it judged.

The model runs in float64, in a worker of its own, on small inputs of the judge. Where its value and
gradients are those of a loss that losscli has, losscli's oracle is the truth, with all its checks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from losscli.cases.axes import DTYPES, DType
from losscli.cases.case import Case
from losscli.implementations import remote
from losscli.implementations.definitions import NotJudgeableError
from losscli.implementations.errors import SandboxError, SubjectError
from losscli.implementations.implementation import Implementation
from losscli.implementations.requests import Forward
from losscli.implementations.sandbox.requests import Inputs
from losscli.implementations.source import Source
from losscli.implementations.subject import Subject, bind, subject_of
from losscli.losses import LOSSES, REDUCTIONS, Reduction, Shape
from losscli.truth.model import WrongReferenceError
from losscli.truth.problem import Problem

SMALL = (7, 33)
CLOSE = 1e-9
"""Relative distance of two results in float64 that are the same formula."""


@dataclass(frozen=True)
class Recognised:
    """What a model computes, and where."""

    loss: str
    reduction: Reduction
    size: Shape | None
    """The shape of the input that ``get_inputs`` gives; None where there is none."""
    dtype: DType
    """The dtype of the first floating one; float32 where there is none."""


class UnknownLossError(WrongReferenceError):
    """A reference is none of the losses that losscli knows, or takes other arguments."""


def recognise(reference: Implementation, device: str) -> Recognised:
    """Return which loss the ``Model`` of a file computes.

    Raises:
        UnknownLossError: it is no loss that losscli has.
        WrongReferenceError: it cannot be imported, or its process dies.
    """
    named, file = reference.name, reference.file
    assert file
    failure = ""
    try:
        file.definition("").signature.order()
    except NotJudgeableError as error:
        raise UnknownLossError(f"the reference {named}: {error}") from None
    try:
        for loss, spec in LOSSES.items():
            for reduction in REDUCTIONS:
                params = spec.resolve({})
                target = spec.default_target_shape(SMALL)
                case = Case(
                    *(loss, SMALL, target, "float64", reduction, "cpu", params, "normal", 11, 2.0)
                )
                try:
                    # Bound as a mean: a model takes no reduction.
                    subject = bind(reference, case)
                    problem = Problem.of(case)
                    if _same(subject, problem):
                        return Recognised(loss, reduction, *_first_input(file))
                except SandboxError:
                    raise
                except SubjectError as error:
                    failure = failure or str(error)
    except SubjectError as error:
        raise WrongReferenceError(f"the reference {named} does not run: {error}") from None
    finally:
        remote.workers.end(file)
    if failure:
        raise UnknownLossError(f"the reference {named} {failure}")
    raise UnknownLossError(
        f"the reference {named} is none of the losses that losscli knows: {', '.join(LOSSES)}"
    )


def _same(subject: Subject, problem: Problem) -> bool:
    """Tell whether a model gives the loss of a problem, and its gradients."""
    answer = subject.send(Forward(problem.operands))
    truth = subject_of("reference", problem.case)
    if not _close(answer, truth.send(Forward(problem.operands))):
        return False
    incoming = problem.usual
    got, due = (each.send(problem.call(incoming)).gradients for each in (subject, truth))
    return all(_close(got[name], due[name]) for name in incoming.wrt)


def _close(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= CLOSE * other.abs().max().clamp(min=1e-300))


def _first_input(file: Source) -> tuple[Shape | None, DType]:
    """Return the shape of the first input that a file gives, and the first floating dtype."""
    (worker,) = remote.workers.known(file)
    inputs = worker.ask(Inputs(), case=None)
    dtype = next((each for _, each in inputs if each in DTYPES), DTYPES[0])
    return inputs[0][0] if inputs else None, dtype
