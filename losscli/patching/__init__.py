"""Replaces other libraries' losses, as the modules of this package say."""

import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, NamedTuple, Self

from losscli.errors import PatchError, UsageError, unknown

LIBRARIES = {
    "torch": "losscli.patching.functional",
    "transformers": "losscli.patching.transformers",
    "trl": "losscli.patching.trl",
}
_MISSING = object()


class _Replaced(NamedTuple):
    path: str
    new: str
    holder: Any
    name: str
    original: Any
    replacement: Any

    def put(self, value: Any) -> None:
        if value is _MISSING:
            delattr(self.holder, self.name)
        else:
            setattr(self.holder, self.name, value)


@dataclass
class Patch:
    """The result of :func:`patch`; leaving it as a context restores what was replaced."""

    library: str
    replaced: Mapping[str, str]
    """Old name -> new name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    _is_owner: bool = field(default=True, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_owner:
            unpatch(self.library)


_active: dict[str, tuple[Patch, list[_Replaced]]] = {}


def patch(library: str, *, memory_budget: int | None = None) -> Patch:
    """Replace the losses of a library by losscli's, with the same arguments and meaning.

    A call that losscli does not take goes on to the library's own function. A program's earlier
    ``from ... import`` is not replaced. Patching again only changes the ``memory_budget``.

    Args:
        library: ``torch`` (the losses of torch.nn.functional), ``transformers`` or ``trl``.
        memory_budget: for ``transformers``, bytes for the logits, as in
            :func:`losscli.functional.linear_cross_entropy`.

    Returns:
        The replaced names, as a context manager that calls :func:`unpatch` at its end, unless the
        library was patched before.

    Raises:
        PatchError: the library is not installed, or in a version that losscli does not know.
        UsageError: losscli patches no such library, or it has no such setting.
    """
    if library not in LIBRARIES:
        raise UsageError(unknown("library", library, LIBRARIES))
    settings = {} if memory_budget is None else {"memory_budget": memory_budget}
    if settings and library != "transformers":
        raise UsageError(f"memory_budget is a setting of 'transformers', but {library!r} was given")
    if library in _active:
        patch, _ = _active[library]
        if patch.settings == settings:
            return Patch(library, patch.replaced, settings, _is_owner=False)
        unpatch(library)
    known = import_module(LIBRARIES[library])
    _check_version(library, known)
    replaced = [_replaced(path, new, make) for path, (new, make) in known.table(**settings).items()]
    for each in replaced:
        each.put(each.replacement)
    _swap(known.MODULE, {id(each.original): each.replacement for each in replaced})
    patch = Patch(library, {each.path: each.new for each in replaced}, settings)
    _active[library] = patch, replaced
    return patch


def unpatch(library: str | None = None) -> None:
    """Restore the losses of a library, or of all.

    A function that other code has replaced since stays, with a RuntimeWarning.

    Raises:
        UsageError: losscli patches no such library.
    """
    if library is not None and library not in LIBRARIES:
        raise UsageError(unknown("library", library, LIBRARIES))
    kept = []
    for name in [each for each in _active if library in (None, each)]:
        _, replaced = _active.pop(name)
        for each in replaced:
            if vars(each.holder).get(each.name) is each.replacement:
                each.put(each.original)
            else:
                kept.append(each.path)
        module = import_module(LIBRARIES[name]).MODULE
        _swap(module, {id(each.replacement): each.original for each in replaced})
    for path in kept:
        warnings.warn(
            f"{path} stays as it is: other code has replaced it after losscli.patch, and may "
            "still call losscli's function",
            RuntimeWarning,
            stacklevel=2,
        )


def patched() -> dict[str, str]:
    """Return what is replaced now: old name -> new name."""
    return {old: new for patch, _ in _active.values() for old, new in patch.replaced.items()}


def _check_version(library: str, known: ModuleType) -> None:
    oldest, newest = (".".join(map(str, version)) for version in (known.OLDEST, known.NEWEST))
    remedy = f"pip install '{library}>={oldest},<{known.NEWEST[0]}.{known.NEWEST[1] + 1}'"
    try:
        version = import_module(library).__version__
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise PatchError(
            f"{library} is not installed, so there is nothing to patch: {remedy}"
        ) from None
    found = tuple(int(part) for part in version.split(".")[:2])
    if not known.OLDEST <= found <= known.NEWEST:
        raise PatchError(
            f"{library} {version} is installed, but losscli knows the losses of {oldest} to "
            f"{newest}: {remedy}, install a losscli that knows {version}, or call "
            "losscli.functional in place of the library's losses"
        )


def _replaced(path: str, new: str, make: Any) -> _Replaced:
    holder, name = path.rpartition(".")[::2]
    try:
        found = resolve_name(holder)
        original = getattr(found, name)
    except (ImportError, AttributeError):
        raise PatchError(f"there is no {path} to replace in the installed version") from None
    # A class may inherit it.
    return _Replaced(path, new, found, name, vars(found).get(name, _MISSING), make(original))


def _swap(module: str, values: Mapping[int, Any]) -> None:
    """Exchange values wherever a module's variables and tables hold them."""
    modules = [found for name, found in sys.modules.items() if f"{name}.".startswith(f"{module}.")]
    variables = [getattr(found, "__dict__", {}) for found in modules]
    tables = [each for names in variables for each in names.values() if type(each) is dict]
    for namespace in (*variables, *tables):
        for name, value in [*namespace.items()]:
            if id(value) in values:
                namespace[name] = values[id(value)]
