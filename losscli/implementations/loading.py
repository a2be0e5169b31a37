"""Imports a file of others in a worker, and binds what it defines to a case."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from types import ModuleType
from typing import TYPE_CHECKING, Any

from losscli.build.diagnosis import placed_error
from losscli.errors import BuildError
from losscli.implementations.errors import text_of

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.cases import Case
    from losscli.implementations.definitions import Definition
    from losscli.implementations.implementation import BoundLoss

_OF_COMPILERS = ("CompilationError", "CppCompileError", "PTXASError")
"""The names of errors of Triton and of torch.compile, which need not be installed."""


def import_source(source: str, path: str, name: str, scratch: str) -> ModuleType:
    """Import a source as a module that lies in ``scratch``, beside its neighbours of ``path``."""
    place = Path(scratch) / f"{name}.py"
    place.write_text(source)
    sys.path.insert(0, scratch)
    if path:
        sys.path.append(str(Path(path).parent))
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def bind(
    module: ModuleType, definition: Definition, order: tuple[str, ...], case: Case
) -> BoundLoss:
    """Return what a file defines with reduction and parameters of a case fixed.

    ``order``: of the operands that are given by position; the others are given by name.
    """
    found: Any = getattr(module, definition.name)
    if definition.kind == "function":
        function = partial(found, **_given(definition.signature, case))
    else:
        made = definition.constructor
        arguments = tuple(getattr(module, "get_init_inputs", tuple)())
        named = _given(made, case) if made else {}
        filled = made.names[: len(arguments)] if made else ()
        given = {name: value for name, value in named.items() if name not in filled}
        instance = found(*arguments, **given).to(case.device)
        own = {k: v for k, v in _given(definition.signature, case).items() if k not in given}
        function = partial(instance, **own)
    names = case.spec.names
    if order == names:
        return function
    later = [name for name in names if name not in order]

    def called(*operands: Tensor) -> Tensor:
        given = dict(zip(names, operands, strict=True))
        by_name = {name: given[name] for name in later}
        loss: Tensor = function(*[given[name] for name in order], **by_name)
        return loss

    return called


def mended(function: BoundLoss, case: Case) -> BoundLoss:
    """Return a function whose loss gets the reduction, the shape and the dtype that are due."""
    import torch

    def called(*operands: Tensor) -> Tensor:
        loss = function(*operands)
        if not isinstance(loss, torch.Tensor):
            return loss
        if case.reduction != "none" and loss.numel() == 1:
            loss = loss.reshape(())
        shape = case.spec.loss_shape([tuple(operand.shape) for operand in operands])
        if case.reduction in ("mean", "sum") and tuple(loss.shape) == shape:
            loss = getattr(loss, case.reduction)()
        given = dict(zip(case.spec.names, operands, strict=True))
        return loss.to(case.spec.dtype_of(given)) if loss.is_floating_point() else loss

    return called


def _given(signature: Any, case: Case) -> dict[str, Any]:
    """Return reduction and parameters as far as they can be given."""
    known = {"reduction": case.reduction, **getattr(case.spec, "arguments", {}), **case.settings}
    return {name: value for name, value in known.items() if signature.takes(name)}


def is_of_compiler(error: BaseException) -> bool:
    """Tell whether an exception is a compiler's or linker's."""
    seen: BaseException | None = error
    while seen is not None:  # cpp_extension raises from what ended with an error
        if isinstance(seen, BuildError | CalledProcessError):
            return True
        if type(seen).__name__ in _OF_COMPILERS:
            return True
        seen = seen.__cause__
    return False


def first_error(error: BaseException, source: str = "", name: str = "") -> str:
    """Return what a compiler or an import says is wrong; ``source``: of the file ``name``."""
    lines = text_of(error).splitlines()
    wrong = [line for line in lines if "error:" in line or "Error:" in line]
    placed = placed_error(text_of(error), source, name)
    return placed or (wrong or lines or [type(error).__name__])[0].strip()
