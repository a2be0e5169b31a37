"""Makes modules from functions' signatures; ``losscli.nn`` adds torch.nn.Module."""

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .calling import Arguments, Calls, reduction_of
from .kinds import explain, refuse_script

_sites = itertools.count(1)
"""Numbers of this process's modules; functions have number 0."""
_DEPRECATED = ("size_average", "reduce")


class _LossModule:
    settings: ClassVar[tuple[str, ...]]
    _site: int
    """Identifies its calls."""

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
    kept: Sequence[str] = (),
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
    signature = inspect.Signature(list(given.values()))

    def start(self: Any, *values: Any, **named: Any) -> None:
        _LossModule.__init__(self)
        bound = signature.bind_partial(*values, **named)
        bound.apply_defaults()
        chosen = bound.arguments
        if "size_average" in chosen:
            old = [chosen.pop(each) for each in _DEPRECATED]
            chosen["reduction"] = reduction_of(chosen["reduction"], *old, stacklevel=3)
        try:
            for each in kept:
                self.register_buffer(each, chosen[each])
            calls.check(chosen)
        except Exception:
            explain(type(self), values, named)
            raise
        for each, value in chosen.items():
            if each not in kept:
                setattr(self, each, value)

    def forward(self: Any, *values: Any, **named: Any) -> Any:
        if len(values) > len(names):
            raise TypeError(f"{name} takes {len(names)} tensors, but got {len(values)}")
        found = dict(zip(tensors, values, strict=False))
        for each, value in named.items():
            found[tensors[names.index(each)] if each in names else each] = value
        for each in kept:
            if found.get(each) is None:
                found[each] = getattr(self, each)
        for each in settings:
            found[each] = getattr(self, each)
        try:
            return calls.loss(arguments(**found), self._site)
        except Exception:
            explain(arguments, (), found)
            raise

    start.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [own, *given.values()], return_annotation="None"
    )
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
