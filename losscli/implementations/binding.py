"""How a case calls a third-party definition."""

import re
from typing import Any

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.definitions import Definition
from losscli.implementations.implementation import BoundLoss
from losscli.implementations.sandbox.program import GRAD_OUTPUT, LOSS, Binding
from losscli.implementations.source import Source, signature_for

_GRADIENT = re.compile("grad|upstream|cotangent|d(out|loss|y|l)|g(o|y|out)?$", re.IGNORECASE)
"""How names of grad_output start."""


def binding(file: Source, case: Case, given: tuple[str, ...] = ()) -> Binding:
    """Return how a case calls a file's definition; ``given`` is the user's order of operands."""
    definition = file.definition(case.loss)
    order = signature_for(definition, case.spec).order(case.spec.names, given)
    made = definition.constructor
    return Binding(
        definition.name,
        definition.kind != "function",
        _given(definition.signature, case),
        _given(made, case) if made else {},
        made.names if made else (),
        case.spec.names,
        order,
        case.device,
        file.call,
        _backward(definition, order, case),
    )


def _backward(
    definition: Definition, order: tuple[str, ...], case: Case
) -> tuple[str, tuple[str, ...]]:
    twin = definition.backward
    if not twin:
        return "", ()
    known = dict(zip(definition.signature.names, order, strict=False))
    known |= {name: name for name in (*case.spec.names, *_given(definition.signature, case))}
    known |= dict.fromkeys(("loss", "output", "out", "result"), LOSS)
    names = twin.signature.names
    arguments = []
    for number, name in enumerate(names):
        is_gradient = bool(_GRADIENT.match(name)) and GRAD_OUTPUT not in arguments
        if name not in known and not is_gradient and number >= twin.signature.required:
            break
        arguments.append(GRAD_OUTPUT if is_gradient else known.get(name, name))
    return twin.name, tuple(arguments) if names else (GRAD_OUTPUT, *order)


def on_copies(function: BoundLoss) -> BoundLoss:
    """Return a function that is called with copies of its operands."""
    return lambda *operands: function(*(each.clone() for each in operands))


def with_all_gradients(function: BoundLoss, case: Case) -> BoundLoss:
    """Return a function whose operands all require gradients if one does."""
    takes = [each.differentiable and each.torch_differentiates for each in case.spec.operands]

    def called(*operands: Tensor) -> Tensor:
        if torch.is_grad_enabled() and any(each.requires_grad for each in operands):
            operands = tuple(
                each.detach().requires_grad_() if wants and not each.requires_grad else each
                for each, wants in zip(operands, takes, strict=True)
            )
        return function(*operands)

    return called


def mended(function: BoundLoss, case: Case) -> BoundLoss:
    """Return a function whose result becomes a loss of the right reduction, shape and dtype."""

    def called(*operands: Tensor) -> Tensor:
        loss = function(*operands)
        shape = case.spec.loss_shape([tuple(operand.shape) for operand in operands])
        if isinstance(loss, tuple | list):
            due = (shape,) if case.reduction == "none" else ((), shape)
            tensors = [each for each in loss if isinstance(each, Tensor)]
            if tensors and all(tuple(each.shape) == shape[1:] for each in tensors):
                tensors.append(torch.stack(tensors))  # the values of each row
            loss = next((each for each in tensors if tuple(each.shape) in due), loss)
        if not isinstance(loss, Tensor):
            return loss
        if case.reduction != "none" and loss.numel() == 1:
            loss = loss.reshape(())
        if case.reduction in ("mean", "sum") and tuple(loss.shape) == shape:
            loss = getattr(loss, case.reduction)()
        given = dict(zip(case.spec.names, operands, strict=True))
        return loss.to(case.spec.dtype_of(given)) if loss.is_floating_point() else loss

    return called


def _given(signature: Any, case: Case) -> dict[str, Any]:
    known = {"reduction": case.reduction, **getattr(case.spec, "arguments", {}), **case.settings}
    return {name: value for name, value in known.items() if signature.takes(name)}
