"""How a case calls a third-party definition, and what is wrong where it cannot."""

from __future__ import annotations

from subprocess import CalledProcessError
from typing import TYPE_CHECKING, Any

from losscli.build.diagnosis import placed_error
from losscli.errors import BuildError, text_of

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.cases.case import Case
    from losscli.implementations.definitions import Definition
    from losscli.implementations.implementation import BoundLoss
    from losscli.implementations.sandbox.program import Binding

_OF_COMPILERS = ("CompilationError", "CppCompileError", "PTXASError")
"""The names of errors of Triton and torch.compile, which may not be installed."""


def binding(definition: Definition, order: tuple[str, ...], case: Case) -> Binding:
    """Return how a case calls a definition; operands in ``order`` are passed by position."""
    from losscli.implementations.sandbox.program import Binding  # imports torch

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
    )


def mended(function: BoundLoss, case: Case) -> BoundLoss:
    """Wrap a function so that its loss has the expected reduction, shape and dtype."""
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
    """Return reduction and parameters that the signature accepts."""
    known = {"reduction": case.reduction, **getattr(case.spec, "arguments", {}), **case.settings}
    return {name: value for name, value in known.items() if signature.takes(name)}


def is_of_compiler(error: BaseException) -> bool:
    """Tell whether an exception comes from a compiler or linker."""
    seen: BaseException | None = error
    while seen is not None:  # cpp_extension raises from what ended with an error
        if isinstance(seen, BuildError | CalledProcessError):
            return True
        if type(seen).__name__ in _OF_COMPILERS:
            return True
        seen = seen.__cause__
    return False


def first_error(error: BaseException, source: str = "", name: str = "") -> str:
    """Return the first error of a compiler or import; ``source`` is the text of file ``name``."""
    lines = text_of(error).splitlines()
    wrong = [line for line in lines if "error:" in line or "Error:" in line]
    placed = placed_error(text_of(error), source, name)
    return placed or (wrong or lines or [type(error).__name__])[0].strip()
