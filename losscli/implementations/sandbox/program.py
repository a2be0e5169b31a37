"""Imports, binds and calls a loss; imports and names nothing of this project, see ``Unmarked``."""

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor


class Binding(NamedTuple):
    """A module's loss, and how it is called."""

    name: str
    is_class: bool
    settings: Mapping[str, Any]
    made: Mapping[str, Any]
    """Keyword arguments for a class's constructor."""
    filled: tuple[str, ...]
    """Constructor arguments that ``get_init_inputs`` may pass by position."""
    names: tuple[str, ...]
    order: tuple[str, ...]
    """The operands passed by position; the others go by keyword."""
    device: str
    expression: str = ""
    """What is evaluated instead of a call of the name."""
    backward: tuple[str, tuple[str, ...]] = ("", ())
    """A separate function for the gradients, and its arguments."""


GRAD_OUTPUT, LOSS = "grad_output", "loss"
"""Arguments of a backward function besides operands, settings and other results of forward."""


def import_source(source: str, path: str, name: str, scratch: str) -> ModuleType:
    """Import an installed module (a name with a dot), or a source as a neighbor of ``path``."""
    if "." in name:
        return importlib.import_module(name)
    place = Path(scratch) / f"{name}.py"
    place.write_text(source, "utf-8")
    sys.path.insert(0, scratch)
    if path:
        sys.path.append(str(Path(path).parent))
        name = ".".join([*_import_packages(Path(path)), name])
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def packages_of(path: Path) -> list[Path]:
    """Return the folders of a file's packages, the outermost first."""
    return [*takewhile(lambda each: (each / "__init__.py").is_file(), path.parents)][::-1]


def _import_packages(path: Path) -> list[str]:
    """Import a file's packages, whose ``__init__.py`` runs on demand; return their names."""
    names: list[str] = []
    for folder in packages_of(path):
        name = ".".join([*names, folder.name])
        if name in sys.modules:
            return []
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        package.__file__ = str(folder / "__init__.py")
        package.__package__ = name
        package.__dict__["__getattr__"] = partial(_defined_in, package)
        sys.modules[name] = package
        names.append(folder.name)
    return names


def _defined_in(package: ModuleType, name: str) -> Any:
    """Return a submodule, or a name from a package's ``__init__.py``."""
    if name.startswith("__"):
        raise AttributeError(f"{package.__name__} has no {name}")
    if importlib.util.find_spec(f"{package.__name__}.{name}"):
        return importlib.import_module(f"{package.__name__}.{name}")
    if package.__dict__.pop("__getattr__", None):
        text = Path(cast(str, package.__file__)).read_bytes()
        exec(compile(text, cast(str, package.__file__), "exec"), package.__dict__)
    return getattr(package, name)


def bound(module: ModuleType, how: Binding) -> Callable[..., Tensor]:
    """Return the bound loss, a function of the operands."""
    if how.expression:
        return _evaluated(module, how)
    found: Any = getattr(module, how.name)
    function: Callable[..., Any] = partial(found, **how.settings)
    if isinstance(found, type) and issubclass(found, torch.autograd.Function):
        function = partial(_applied, found, **how.settings)
    if how.backward[0]:
        function = _of_two_functions(module, how, function)
    if how.is_class:
        arguments = tuple(getattr(module, "get_init_inputs", tuple)())
        filled = how.filled[: len(arguments)]
        given = {name: value for name, value in how.made.items() if name not in filled}
        instance = found(*arguments, **given).to(how.device)
        own = {name: value for name, value in how.settings.items() if name not in given}
        function = partial(instance, **own)
    if how.order == how.names:
        return function

    def called(*operands: Tensor) -> Tensor:
        given = dict(zip(how.names, operands, strict=True))
        by_name = {name: given[name] for name in how.names if name not in how.order}
        return cast(Tensor, function(*[given[name] for name in how.order], **by_name))

    return called


def _applied(function: Any, *operands: Tensor, **settings: Any) -> Tensor:
    """Apply an autograd function, which takes no keywords."""
    given = inspect.signature(function.forward).bind(None, *operands, **settings)
    given.apply_defaults()
    return cast(Tensor, function.apply(*given.args[1:]))


def _of_two_functions(
    module: ModuleType, how: Binding, forward: Callable[..., Any]
) -> Callable[..., Tensor]:
    name, arguments = how.backward
    backward_of = getattr(module, name)

    class OfTwoFunctions(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, names: Sequence[str], *operands: Tensor) -> Tensor:
            ctx.names, placed = names, len(how.order)
            by_name = dict(zip(names[placed:], operands[placed:], strict=True))
            found = forward(*operands[:placed], **by_name)
            loss: Tensor
            loss, *ctx.kept = found if isinstance(found, tuple | list) else (found,)
            ctx.save_for_backward(loss, *operands)
            return loss

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
            loss, *operands = ctx.saved_tensors
            known = {**how.settings, **dict(zip(ctx.names, operands, strict=True))}
            known |= {GRAD_OUTPUT: grad_output, LOSS: loss}
            kept = iter(ctx.kept)
            found = backward_of(*(known[a] if a in known else next(kept) for a in arguments))
            gradients = [*found] if isinstance(found, tuple | list) else [found]
            if GRAD_OUTPUT not in arguments:
                gradients = [each if each is None else each * grad_output for each in gradients]
            return (None, *gradients, *[None] * (len(operands) - len(gradients)))

    def called(*operands: Tensor, **others: Tensor) -> Tensor:
        names = (*how.order[: len(operands)], *others)
        found = OfTwoFunctions.apply(names, *operands, *others.values())  # type: ignore[no-untyped-call]
        return cast(Tensor, found)

    return called


def _evaluated(module: ModuleType, how: Binding) -> Callable[..., Tensor]:
    code = compile(how.expression, "--call", "eval")

    def called(*operands: Tensor) -> Tensor:
        given = {**how.settings, **dict(zip(how.names, operands, strict=True))}
        try:
            found: Tensor = eval(code, vars(module), given)
        except NameError as error:
            there = [name for name in vars(module) if not name.startswith("_")]
            told = f"{error}; there are {', '.join([*how.names, *how.settings])}"
            raise NameError(f"{told} and, in the file, {', '.join(there)}") from None
        return found

    return called


def main(
    source: Sequence[str],
    how: Binding,
    operands: Sequence[Tensor],
    incoming: Tensor | None,
    results: str,
) -> None:
    """Call once in a separate process; save the loss and first gradient, or an error."""
    if pid := os.fork():
        os.waitpid(pid, 0)
        return
    try:
        function = bound(import_source(*source), how)
        leaf, *others = (each.to(how.device) for each in operands)
        with torch.set_grad_enabled(incoming is not None):
            loss = function(leaf.requires_grad_(incoming is not None), *others)
        found = [loss]
        if incoming is not None:
            found += torch.autograd.grad(loss, leaf, incoming.to(how.device))
        torch.save([each.detach().cpu() for each in found], results)
    except BaseException as error:
        torch.save(f"raised {type(error).__name__}: {error}", results)
    finally:
        os._exit(0)
