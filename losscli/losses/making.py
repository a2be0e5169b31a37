"""Makes a spec, functions and a module from the function in the file of a loss."""

import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

from losscli.machine.pytorch import Tensor

from .calling import Arguments, Calls, reduction_of
from .fields import CLASS_INDICES, Operand
from .formulas import in_float32
from .kinds import explain, refuse_script
from .rows.calls import RowCalls
from .rows.spec import RowSpec
from .spec import LossSpec

Given = ParamSpec("Given")
Result = TypeVar("Result")

OPERANDS = (Operand("input", "predictions"), Operand("target", "values to predict"))
_DEPRECATED = {
    "size_average": "deprecated, as in PyTorch; use ``reduction``.",
    "reduce": "deprecated, as ``size_average``.",
}
OF_ROWS = {
    **_DEPRECATED,
    "tokens": "token indices in int64, int32 or uint8, ``(...)``.",
    "weight": "a factor for each class, ``(C)``; not differentiable.",
    "reduction": "``none`` (one loss for each row), ``mean`` or ``sum`` (shape ``()``).",
    "ignore_index": "class index of rows with loss and gradient 0, which the mean does not count.",
    "label_smoothing": "share of each target spread equally over all classes, from 0 to 1.",
    "temperature": "divides the logits; above 0.",
    "softcap": "makes logits ``softcap * tanh(x / softcap)``, after the temperature; 0 for none.",
    "z_loss": "factor of each row's squared log-sum-exp, which is added to its loss; at least 0.",
    "mask": "bool, ``(...)``: the rows that count; None for all. The loss and the gradients of the "
    "others are 0, whatever they hold.",
    "entropy": "whether to return the entropies too.",
}
OF_COUNTED = (
    "``none`` (one loss for each row), ``mean`` (over the rows that count, counted on the device) "
    "or ``sum`` (shape ``()``)."
)
OF_CLASSES = {
    "IndexError": "on the CPU, a class index is out of range. On a GPU the row's loss and gradient "
    "are NaN."
}


def element_loss(
    arguments: Callable[..., Arguments],
    module: str,
    /,
    *,
    calls: Calls | None = None,
    kept: Sequence[str] = (),
    operands: tuple[Operand, ...] = OPERANDS,
    elements: Callable[..., Tensor] | None = None,
    **fields: Any,
) -> LossSpec:
    """Return the spec of an elementwise loss, with ``fields``.

    ``module`` is the name of its module, which stores ``kept`` tensors as buffers. ``elements`` is
    the formula of each element, for a reference in at least float32.
    """
    if elements:
        fields |= {"reference": in_float32(elements), "widens": True}
    if "operands_of" in fields:
        operands = fields["operands_of"]({each.name: each.default for each in fields["parameters"]})
    fields["operands"] = operands
    calls = calls or Calls(_name(arguments))
    common = _of_elements(calls, kept, *operands) | _described(fields)
    describe(arguments, common, "Returns:\n    The loss, in the promoted dtype.")
    return LossSpec(calls=calls, **_fields(arguments, module, calls, kept, fields))


def row_loss(
    arguments: Callable[..., Arguments],
    module: str,
    /,
    *,
    calls: RowCalls | None = None,
    kept: Sequence[str] = (),
    common: Mapping[str, str] | None = None,
    **fields: Any,
) -> RowSpec:
    """Return the spec of a row-wise loss, as :func:`element_loss`; ``common`` is for docstrings."""
    calls = calls or RowCalls(_name(arguments))
    kinds = [operand.kind for operand in fields["operands"]]
    errors = OF_CLASSES if CLASS_INDICES in kinds else {}
    describe(arguments, {**_described(fields), **OF_ROWS, **errors, **(common or {})})
    return RowSpec(in_place=calls.in_place, **_fields(arguments, module, calls, kept, fields))


def public(
    common: Mapping[str, str],
) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Return a decorator that completes a function's docstring and explains wrong arguments."""

    def decorate(function: Callable[Given, Result]) -> Callable[Given, Result]:
        describe(function, common)

        @wraps(function)
        def called(*given: Given.args, **named: Given.kwargs) -> Result:
            try:
                return function(*given, **named)
            except Exception:
                explain(function, given, named)
                raise

        called.__prepare_scriptable__ = partial(refuse_script, called)  # type: ignore[attr-defined]
        return called

    return decorate


def describe(function: Callable[..., Any], common: Mapping[str, str], returns: str = "") -> None:
    """Complete a docstring with arguments and errors that several functions have, and a result."""
    head, *sections = re.split(
        r"\n\n(?=Args:|Returns:|Raises:)", inspect.cleandoc(function.__doc__ or "")
    )
    found = {section.partition(":")[0]: section for section in sections}
    described = {**common, **_entries(found.get("Args", ""))}
    given = {name: described[name] for name in inspect.signature(function).parameters}
    errors = {name: text for name, text in common.items() if name.endswith("Error")}
    errors |= _entries(found.get("Raises", ""))
    whole = [head, _section("Args", given), found.get("Returns", returns)]
    function.__doc__ = "\n\n".join(filter(None, [*whole, _section("Raises", errors)]))


def _of_elements(
    calls: Calls, kept: Sequence[str], first: Operand, *others: Operand
) -> dict[str, str]:
    """Return what docstrings of elementwise losses say of arguments."""
    mean = "divides by the number of elements, as in PyTorch"
    if calls.by_weights:
        mean = "is then the weighted sum over the sum of the weights, as in PyTorch"
    elif "weight" not in kept:
        mean += "'s Huber loss"
    rules = calls.shapes.rules if calls.shapes else {}
    fits = "broadcasts to the shape of the loss" if rules else "broadcastable with the others"
    dues = {name: f"of {rule.due}" for name, rule in rules.items()}
    strict = [(name, rule) for name, rule in rules.items() if not rule.of_loss]
    aligned = f"broadcastable with ``{first.name}``, aligned at the last dimension"
    return {
        first.name: f"{first.description}, any shape.",
        **{each.name: f"{each.description}; {dues.get(each.name, aligned)}." for each in others},
        **_DEPRECATED,
        "reduction": "``none`` (the broadcast shape), ``mean`` or ``sum`` (shape ``()``).",
        "weight": f"multiplies the loss of each element; {fits}, and differentiable. The mean "
        f"{mean}.",
        **{rule.error.__name__: f"{name} does not have {rule.due}." for name, rule in strict},
    }


def _described(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return what a docstring says of parameters unless it has its own words."""
    return {
        each.name: each.description + ("." if each.is_switch else f"; {each.domain}.")
        for each in fields.get("parameters", ())
    }


def _entries(section: str) -> dict[str, str]:
    return dict(re.findall(r"^    ([\w.]+): (.*(?:\n        .*)*)", section, re.MULTILINE))


def _section(title: str, entries: Mapping[str, str]) -> str:
    wrapper = textwrap.TextWrapper(96, " " * 4, " " * 8, break_on_hyphens=False)
    lines = [wrapper.fill(f"{name}: {' '.join(text.split())}") for name, text in entries.items()]
    return "\n".join([f"{title}:", *lines]) if lines else ""


def _name(arguments: Callable[..., Arguments]) -> str:
    return arguments.__name__.removesuffix("_loss")


def _fields(
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


_sites = itertools.count(1)
"""Numbers of this process's modules, which identify their calls; functions have number 0."""


class _LossModule:
    settings: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self._site = next(_sites)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        self._site = next(_sites)

    __prepare_scriptable__ = refuse_script

    def extra_repr(self) -> str:
        """Show the settings when the module is printed."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.settings)


def module_of(
    name: str,
    arguments: Callable[..., Arguments],
    calls: Calls,
    operands: Sequence[str],
    kept: Sequence[str],
) -> type[_LossModule]:
    """Return a loss's module, whose settings are the function's.

    ``operands`` renames the first tensors of ``forward``; ``kept`` tensors become buffers.
    """
    every = inspect.signature(arguments).parameters
    tensors = tuple(each for each in every if "Tensor" in str(every[each].annotation))
    names = (*operands, *tensors[len(operands) :])
    given = {n: each for n, each in every.items() if n not in tensors or n in kept}
    settings = [n for n in given if n not in (*kept, *_DEPRECATED)]
    settings.sort(key=lambda n: n != "reduction")
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([own, *given.values()], return_annotation="None")

    def start(self: Any, *values: Any, **named: Any) -> None:
        _LossModule.__init__(self)
        bound = signature.bind_partial(self, *values, **named)
        bound.apply_defaults()
        chosen = bound.arguments
        del chosen["self"]
        if "size_average" in chosen:
            old = [chosen.pop(each) for each in _DEPRECATED]
            chosen["reduction"] = reduction_of(chosen["reduction"], *old, stacklevel=3)
        try:
            for each in kept:
                self.register_buffer(each, chosen.pop(each))
            calls.check(chosen)
        except Exception:
            explain(type(self), values, named)
            raise
        for each, value in chosen.items():
            setattr(self, each, value)

    def forward(self: Any, *values: Any, **named: Any) -> Any:
        if len(values) > len(names):
            raise TypeError(f"{name} takes {len(names)} tensors, but got {len(values)}")
        found = dict(zip(tensors, values, strict=False))
        for each, value in named.items():
            if each in settings:
                raise TypeError(f"{name} takes {each} in its constructor, not in a call")
            tensor = tensors[names.index(each)] if each in names else each
            if tensor in found:
                raise TypeError(f"{name} got {each} twice: by position and by name")
            found[tensor] = value
        for each in kept:
            if found.get(each) is None:
                found[each] = getattr(self, each)
        found |= {each: getattr(self, each) for each in settings}
        try:
            return calls.loss(arguments(**found), self._site)
        except Exception:
            explain(arguments, (), found)
            raise

    start.__signature__ = signature  # type: ignore[attr-defined]
    shown = [every[n].replace(name=m, kind=own.kind) for n, m in zip(tensors, names, strict=True)]
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [own, *sorted(shown, key=lambda each: each.default is None)], return_annotation="Tensor"
    )
    forward.__doc__ = f"Return what :func:`losscli.functional.{arguments.__name__}` does."
    members = {
        "__module__": arguments.__module__,
        "__init__": start,
        "__doc__": f"See :func:`losscli.functional.{arguments.__name__}`.",
        "forward": forward,
        "settings": tuple(settings),
    }
    return type(name, (_LossModule,), members)
