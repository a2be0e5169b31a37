"""The requests to an implementation; each also checks a response, which may be forged."""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import reduce
from typing import Self

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.errors import NoSecondDerivativesError, SubjectError
from losscli.implementations.local import Gradients, LocalSubject, Operands, leaves_of, plain
from losscli.implementations.local import Request as Request
from losscli.losses import MODEL
from losscli.reasons import Code

GRAD_OUTPUT = "grad_output"


@dataclass(frozen=True)
class Answer:
    """The results of a call."""

    loss: Tensor
    gradients: Gradients
    """Those of ``wrt``; None if missing."""

    def items(self) -> Gradients:
        """Return all results by their names in reports."""
        return {"loss": self.loss, **{f"{n} gradient": g for n, g in self.gradients.items()}}

    def copy(self) -> Self:
        """Copy all results on the current stream."""
        gradients = {n: None if g is None else g.clone() for n, g in self.gradients.items()}
        return replace(self, loss=self.loss.clone(), gradients=gradients)


class Forward(Request[Tensor], frozen=True):
    """Compute the loss alone, on the path that prepares the gradients of ``wrt``."""

    operands: Operands
    wrt: tuple[str, ...] = ()

    def perform(self, local: LocalSubject) -> Tensor:
        with local.blamed(), torch.set_grad_enabled(bool(self.wrt)):
            return local.result(leaves_of(self.operands, self.wrt), ()).detach()


class Call(Request[Answer], frozen=True):
    """Compute the loss and the gradients of ``wrt``."""

    operands: Operands
    wrt: tuple[str, ...] = ()
    grad_output: Tensor | None = None
    """In the shape of the loss; required if ``wrt`` is not empty."""
    contents: Operands | None = None
    """Copied into the operands just before, on the same stream."""

    def fill(self, contents: Operands | None) -> None:
        """Copy contents into the operands."""
        for name, values in (contents or {}).items():
            self.operands[name].copy_(values)

    def perform(self, local: LocalSubject) -> Answer:
        self.fill(self.contents)
        loss, leaves = local.forward(self.operands, self.wrt)
        if not self.wrt:
            return Answer(loss.detach(), {})
        return self.backward(local, loss, leaves, self.grad_output)

    def backward(
        self,
        local: LocalSubject,
        loss: Tensor,
        leaves: Operands,
        grad_output: Tensor | None,
        *,
        retain: bool = False,
    ) -> Answer:
        """Run backward; ``retain`` the graph."""
        if grad_output is not None and loss.shape != grad_output.shape:
            own, due = tuple(loss.shape), tuple(grad_output.shape)
            text = f"returned a loss of shape {own}, not {due}"
            raise SubjectError(text, Code.SHAPE_OR_DTYPE_MISMATCH)
        wanted = [leaves[name] for name in self.wrt]
        with local.blamed():
            found = torch.autograd.grad(loss, wanted, grad_output, retain, allow_unused=True)
        gradients = [each if each is None else plain(each) for each in found]
        return Answer(loss.detach(), dict(zip(self.wrt, gradients, strict=True)))

    def accepts(self, response: Answer) -> bool:
        return {*response.gradients} == {*self.wrt}


class AnswerOf(Request[Answer], frozen=True):
    """The answer of a call in other conditions."""

    call: Call

    def accepts(self, response: Answer) -> bool:
        return self.call.accepts(response)


class ForEachGradOutput(Request[Iterable[Answer]], frozen=True):
    """An answer for each grad_output, in order."""

    call: Call
    grad_outputs: Sequence[Tensor]

    def accepts(self, response: Iterable[Answer]) -> bool:
        return accept_each([self.call] * len(self.grad_outputs), list(response))


class RetainGraph(ForEachGradOutput, frozen=True):
    """An answer for each grad_output through one retained graph."""

    def perform(self, local: LocalSubject) -> Iterator[Answer]:
        call = self.call
        loss, leaves = local.forward(call.operands, call.wrt)
        for grad_output in self.grad_outputs:
            answer = call.backward(local, loss, leaves, grad_output, retain=True)
            local.finish()
            yield answer


class Accumulate(Request[Gradients], frozen=True):
    """Accumulate ``.grad`` over ``times`` forward and backward passes."""

    call: Call
    before: Operands
    """The initial ``.grad``."""
    times: int

    def perform(self, local: LocalSubject) -> Gradients:
        leaves = leaves_of(self.call.operands, self.call.wrt)
        for name in self.call.wrt:
            leaves[name].grad = self.before[name].clone()
        for _ in range(self.times):
            with local.blamed():  # without setting a grad mode, so that one left by a call shows
                local.result(leaves, self.call.wrt).backward(self.call.grad_output)
        return {name: leaves[name].grad for name in self.call.wrt}

    def accepts(self, response: Gradients) -> bool:
        return {*response} == {*self.call.wrt}


class SecondDerivatives(Request[Gradients], frozen=True):
    """Differentiate the gradients' product with tensors; NoSecondDerivativesError if impossible."""

    operands: Operands
    grad_output: Tensor
    """In the shape of the loss."""
    toward: Operands
    """The factor of each operand's gradient, by name."""

    def perform(self, local: LocalSubject) -> Gradients:
        wrt = tuple(self.toward)
        loss, operands = local.forward(self.operands, wrt)
        leaves = [operands[name] for name in wrt]
        g = self.grad_output.detach().clone().requires_grad_()
        try:
            with local.blamed():
                gradients = torch.autograd.grad(loss, leaves, g, create_graph=True)
                products = map(torch.mul, gradients, self.toward.values())
                total = reduce(torch.add, map(torch.sum, products))
                found = torch.autograd.grad(total, (*leaves, g), allow_unused=True)
                local.finish()
        except SubjectError as error:
            raise NoSecondDerivativesError(str(error)) from error
        return dict(zip((*wrt, GRAD_OUTPUT), found, strict=True))

    def accepts(self, response: Gradients) -> bool:
        return {*response} == {*self.toward, GRAD_OUTPUT}


@dataclass(frozen=True)
class Head:
    """One term of a joint loss: its weight, and a call without a gradient."""

    case: Case | None
    """None is the requested subject's case."""
    call: Call
    weight: float


class JointGradients(Request[list[Gradients]], frozen=True):
    """Run one backward pass through a weighted sum of one implementation's losses."""

    heads: Sequence[Head]

    def perform(self, local: LocalSubject) -> list[Gradients]:
        wanted: list[Tensor] = []
        terms: list[Tensor] = []
        for head in self.heads:
            loss, operands = local.bound_to(head.case).forward(head.call.operands, head.call.wrt)
            wanted += [operands[name] for name in head.call.wrt]
            terms.append(head.weight * (loss.sum() if loss.dim() else loss))
        with local.blamed():
            # In one dtype, so that each one's grad_output is its weight.
            total = torch.stack(terms).sum()
            found = iter(torch.autograd.grad(total, wanted, allow_unused=True))
        return [{name: next(found) for name in head.call.wrt} for head in self.heads]

    def accepts(self, response: list[Gradients]) -> bool:
        return [{*found} for found in response] == [{*head.call.wrt} for head in self.heads]


class ChangedData(AnswerOf, frozen=True):
    """The answer of a call whose operand gets new ``.data`` between forward and backward."""

    name: str
    data: Tensor

    def perform(self, local: LocalSubject) -> Answer:
        loss, leaves = local.forward(self.call.operands, self.call.wrt)
        leaves[self.name].data = self.data
        return self.call.backward(local, loss, leaves, self.call.grad_output)


class InThread(Request[list[Answer]], frozen=True):
    """The answers of successive calls in another thread."""

    calls: Sequence[Call]

    def perform(self, local: LocalSubject) -> list[Answer]:
        def answer_all() -> list[Answer]:
            # The first GPU is the current one of a new thread.
            with nullcontext() if local.device == "cpu" else torch.cuda.device(local.device):
                return [call.perform(local) for call in self.calls]

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(answer_all).result()

    def accepts(self, response: list[Answer]) -> bool:
        return accept_each(self.calls, response)


def accept_each(requests: Sequence[Request[Answer]], responses: Sequence[Answer]) -> bool:
    """Tell whether each request has an acceptable response."""
    pairs = zip(requests, responses, strict=False)
    return len(requests) == len(responses) and all(one.accepts(answer) for one, answer in pairs)


def toggle(values: Tensor, case: Case) -> None:
    """Change some predictions' sign or order in place; a second call restores them exactly."""
    if case.spec.unit == MODEL and case.spec.operands[0].domain.is_real:
        # A Model may ignore signs: double or halve.
        integers = values.view(getattr(torch, f"int{8 * values.itemsize}"))
        mantissa = round(-math.log2(torch.finfo(values.dtype).eps))
        integers.bitwise_xor_(1 << mantissa)  # the last bit of the exponent
    elif case.spec.operands[0].domain.is_real:
        values.neg_()
    elif values.dim():
        values.copy_(values.flip(-1))
