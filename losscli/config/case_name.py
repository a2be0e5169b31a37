"""Reads the name of a case, ``mse beta=0.5 1024x1024 float32 mean``, as the config of that case."""

from __future__ import annotations

from typing import Any

from losscli.axes import DISTRIBUTIONS, DTYPES, LAYOUTS
from losscli.config.fields import check_grad_output, check_loss
from losscli.config.sizes import parse_size
from losscli.errors import UsageError, unknown
from losscli.losses import REDUCTIONS, find_loss
from losscli.units import format_size

_KNOWN = {
    "dtypes": DTYPES,
    "reductions": REDUCTIONS,
    "layouts": LAYOUTS,
    "distribution": DISTRIBUTIONS,
}
_EXAMPLE = "Write it as `losscli bench --list` does, such as 'mse 1024x1024 float32 mean'."


def config_of_case(name: str) -> dict[str, Any]:
    """Return the keys of a config that has this case alone; what is not named has its default.

    Raises:
        UsageError: it is no name of a case.
    """
    first, *words = name.split() or [""]
    loss = check_loss(first)
    parameters: dict[str, list[Any]] = {}
    keys: dict[str, Any] = {}
    for word in words:
        key, value = _read(word, name, [p.name for p in find_loss(loss).parameters])
        if key in keys or key in parameters:
            raise UsageError(f"'{name}' has two values of one axis: '{word}'. {_EXAMPLE}")
        (parameters if "=" in word and key != "grad_outputs" else keys)[key] = value
    if "sizes" not in keys:
        raise UsageError(f"'{name}' has no size. {_EXAMPLE}")
    if "distribution" in keys:
        keys["inputs"] = {"distribution": keys.pop("distribution")}
    return {"losses": [{loss: parameters}], **keys}


def _read(word: str, name: str, parameters: list[str]) -> tuple[str, Any]:
    """Return the key of a config that a word is a value of, and the value."""
    key, equals, value = word.partition("=")
    if equals and key == "grad_output":
        return "grad_outputs", [check_grad_output(value)]
    if equals:
        if key not in parameters:
            raise UsageError(f"'{name}': {unknown('parameter', key, parameters)}")
        return key, [float(value) if _is_number(value) else value]
    for key, known in _KNOWN.items():
        if word in known:
            return key, [word]
    if not word[:1].isdigit():
        raise UsageError(f"'{name}': '{word}' is no part of a case. {_EXAMPLE}")
    sizes = parse_size(word)
    if len(sizes) > 1:
        raise UsageError(f"'{name}': '{word}' is several sizes. Name one.")
    return "sizes", [format_size(sizes[0])]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
