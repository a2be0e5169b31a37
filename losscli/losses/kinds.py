"""Explains, once a call has failed, which argument has the wrong type."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from losscli.machine.pytorch import Tensor, torch


def explain(function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise an error for the first argument of a wrong type, or a tensor that no kernel accepts."""
    signature = inspect.signature(function)
    try:
        arguments = signature.bind_partial(*given, **named).arguments
    except TypeError:
        return
    for name, value in arguments.items():
        parameter = signature.parameters[name]
        if isinstance(value, torch.Tensor):
            if wrong := no_kernel_takes(value):
                raise NotImplementedError(f"{function.__name__}: {name} {wrong}") from None
            continue
        kinds = str(parameter.annotation).split(" | ")
        known = [_KINDS[kind] for kind in kinds if kind in _KINDS]
        if len(known) < len(kinds) or any(takes(value) for _, takes in known):
            continue
        due = " or ".join(words for words, _ in known)
        wrong = f"{function.__name__}: {name} must be {due}, but is {_shown(value)}"
        if kinds == ["str"]:
            raise ValueError(wrong) from None
        raise TypeError(f"{wrong}{_advice(kinds, value, parameter)}") from None


def no_kernel_takes(tensor: Tensor) -> str:
    """Return why no kernel accepts a tensor, to follow its name, or ``""``."""
    if tensor.is_nested:
        return (
            "must be a dense tensor, but is nested; give the loss torch.cat(x.unbind()) of each "
            "nested x, whose rows are those of all its parts"
        )
    if tensor.is_quantized:
        return f"must not be quantized, but is {tensor.dtype}; convert it with .dequantize()"
    if tensor.layout is not torch.strided:
        return f"must be a dense tensor, but is {tensor.layout}; convert it with .to_dense()"
    if tensor.device.type not in ("cpu", "cuda", "meta"):
        return f"must be on cpu or cuda, but is on {tensor.device}; move it with .cpu()"
    return ""


def not_floating(*dtypes: "torch.dtype") -> str:
    """Return what is wrong with operands of other dtypes, to follow their names."""
    way = "convert with .float()"
    if any(dtype.is_complex for dtype in dtypes):
        way = "torch.view_as_real() returns the real and the imaginary parts as real numbers"
    given = f"{'are' if len(dtypes) > 1 else 'is'} {' and '.join(map(str, dtypes))}"
    return f"must be float32, float64, float16 or bfloat16, but {given}; {way}"


def refuse_script(self: Any) -> Any:
    """Raise for torch.jit.script, which calls this before it compiles."""
    name = getattr(self, "__name__", None) or type(self).__name__
    raise NotImplementedError(
        f"{name} is not compiled by torch.jit.script; use torch.compile or torch.export"
    )


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "Tensor": ("a torch.Tensor", lambda value: False),
    "float": ("a number", lambda value: isinstance(value, Real)),
    "int": ("an integer", lambda value: isinstance(value, Real)),
    "bool": ("a bool", lambda value: isinstance(value, Real)),
    "Sequence[float]": ("several", lambda value: isinstance(value, list | tuple)),
    "str": ("a str such as 'mean'", lambda value: isinstance(value, str)),
    "None": ("None", lambda value: value is None),
}
"""Descriptions of annotations, and checks for values that are not tensors."""


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    text, kind = repr(value), type(value).__name__
    return f"{text} ({kind})" if len(text) < 40 and "\n" not in text else f"of type {kind}"


def _advice(kinds: Sequence[str], value: Any, parameter: inspect.Parameter) -> str:
    if "Tensor" in kinds and value is not None:
        return f"; make a tensor of it with torch.as_tensor({parameter.name})"
    if parameter.default is not inspect.Parameter.empty and parameter.default is not None:
        return f"; leave it out for {parameter.default!r}"
    return ""
