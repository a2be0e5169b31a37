"""Makes the spec of a loss from its public function, as that is written in the file of the loss.

The function returns its :class:`~losscli.losses.calling.Arguments`. From it come the functions that
users call, with the same arguments, and the module, whose settings are those of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .calling import Arguments, Calls
from .module import module_of
from .rows.calls import RowCalls
from .rows.spec import RowSpec
from .spec import LossSpec


def element_loss(
    arguments: Callable[..., Arguments],
    module: str,
    /,
    *,
    calls: Calls | None = None,
    kept: Sequence[str] = (),
    **fields: Any,
) -> LossSpec:
    """Return the spec of a loss of elements.

    Args:
        arguments: the public function as it is written: ``NAME`` or ``NAME_loss``.
        module: the name of the module.
        calls: where they are not just :class:`Calls`.
        kept: the tensors that the module has as buffers.
        fields: further fields of the spec.
    """
    calls = calls or Calls(_name(arguments))
    return LossSpec(by_weights=calls.by_weights, **_public(arguments, module, calls, kept, fields))


def row_loss(
    arguments: Callable[..., Arguments],
    module: str,
    /,
    *,
    calls: RowCalls | None = None,
    kept: Sequence[str] = (),
    **fields: Any,
) -> RowSpec:
    """Return the spec of a loss over rows; the arguments are those of :func:`element_loss`."""
    calls = calls or RowCalls(_name(arguments))
    return RowSpec(in_place=calls.in_place, **_public(arguments, module, calls, kept, fields))


def _name(arguments: Callable[..., Arguments]) -> str:
    return arguments.__name__.removesuffix("_loss")


def _public(
    arguments: Callable[..., Arguments],
    module: str,
    calls: Calls,
    kept: Sequence[str],
    fields: dict[str, Any],
) -> dict[str, Any]:
    """Return the fields of a spec, with its functions and its module."""
    calls.parameters = tuple(fields["parameters"])
    loss = calls.function(arguments)
    names = [operand.name for operand in fields["operands"]]
    return {
        "name": calls.name,
        "loss": loss,
        "loss_with_grad": calls.with_grad(loss),
        "module": module_of(module, arguments, calls, names, kept),
        **fields,
    }
