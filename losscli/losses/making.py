"""Makes a spec from the function in the file of a loss, and completes its docstring."""

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .calling import Arguments, Calls
from .module import module_of
from .rows.calls import RowCalls
from .rows.spec import RowSpec
from .spec import LossSpec, Operand

OPERANDS = (Operand("input", "predictions"), Operand("target", "values to predict"))
_DEPRECATED = {
    "size_average": "deprecated, as in PyTorch; use ``reduction``.",
    "reduce": "deprecated, as ``size_average``.",
}
_OF_ELEMENTS = {
    "input": "predictions, any shape.",
    "target": "broadcastable with ``input``, aligned at the last dimension.",
    **_DEPRECATED,
    "reduction": "``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).",
}
_OF_ROWS = {
    **_DEPRECATED,
    "reduction": "``none`` (one loss for each row), ``mean`` or ``sum`` (shape ``()``).",
}
_WEIGHT = "multiplies the loss of each element; {}, and differentiable. The mean {}."


def element_loss(
    arguments: Callable[..., Arguments],
    module: str,
    /,
    *,
    calls: Calls | None = None,
    kept: Sequence[str] = (),
    operands: tuple[Operand, ...] = OPERANDS,
    **fields: Any,
) -> LossSpec:
    """Return the spec of an elementwise loss, with ``fields``.

    ``module`` is the name of its module, which stores ``kept`` tensors as buffers.
    """
    if "operands_of" in fields:
        operands = fields["operands_of"]({each.name: each.default for each in fields["parameters"]})
    fields["operands"] = operands
    calls = calls or Calls(_name(arguments))
    mean = "divides by the number of elements, as in PyTorch's Huber loss"
    if calls.by_weights:
        mean = "is then the weighted sum over the sum of the weights, as in PyTorch"
    elif "weight" in kept:
        mean = "divides by the number of elements, as in PyTorch"
    fits = "broadcastable with the others"
    if calls.shapes is not None:
        fits = "broadcasts to the shape of the loss"
    common = {**_OF_ELEMENTS, "weight": _WEIGHT.format(fits, mean)}
    describe(arguments, common, "Returns:\n    The loss, in the promoted dtype.")
    fields |= {"by_weights": calls.by_weights, "shapes": calls.shapes}
    return LossSpec(**_public(arguments, module, calls, kept, fields))


def row_loss(
    arguments: Callable[..., Arguments],
    module: str,
    /,
    *,
    calls: RowCalls | None = None,
    kept: Sequence[str] = (),
    **fields: Any,
) -> RowSpec:
    """Return the spec of a row-wise loss; arguments as in :func:`element_loss`."""
    calls = calls or RowCalls(_name(arguments))
    describe(arguments, _OF_ROWS)
    return RowSpec(in_place=calls.in_place, **_public(arguments, module, calls, kept, fields))


def describe(arguments: Callable[..., Any], common: Mapping[str, str], returns: str = "") -> None:
    """Complete a function's docstring with common arguments and the result."""
    head, *sections = re.split(
        r"\n\n(?=Args:|Returns:|Raises:)", inspect.cleandoc(arguments.__doc__ or "")
    )
    found = {section.partition(":")[0]: section for section in sections}
    entries = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", found.get("Args", ""), re.MULTILINE)
    described = {**common, **dict(entries)}
    lines = [
        textwrap.fill(
            f"{name}: {' '.join(described[name].split())}",
            width=96,
            initial_indent="    ",
            subsequent_indent=" " * 8,
            break_on_hyphens=False,
        )
        for name in inspect.signature(arguments).parameters
    ]
    found["Args"] = "\n".join(["Args:", *lines])
    found.setdefault("Returns", returns)
    whole = [head, *(found.get(name, "") for name in ("Args", "Returns", "Raises"))]
    arguments.__doc__ = "\n\n".join(filter(None, whole))


def _name(arguments: Callable[..., Arguments]) -> str:
    return arguments.__name__.removesuffix("_loss")


def _public(
    arguments: Callable[..., Arguments],
    module: str,
    calls: Calls,
    kept: Sequence[str],
    fields: dict[str, Any],
) -> dict[str, Any]:
    calls.parameters = tuple(fields.get("parameters", ()))
    loss = calls.function(arguments)
    names = [operand.name for operand in fields["operands"]]
    return {
        "name": calls.name,
        "loss": loss,
        "loss_with_grad": calls.with_grad(loss),
        "module": module_of(module, arguments, calls, names, kept),
        **fields,
    }
