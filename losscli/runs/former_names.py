"""Present names by those that earlier versions wrote: keys, a verdict, tables of configs."""

from typing import Any

KEYS = {
    "honest": "legitimate",
    "cells": "configurations",
    "peer": "baseline",
    "beside": "interleaved",
}
TEXTS = {
    "NO WORSE THAN TORCH": "SAME ERROR AS PYTORCH",
    "losscli and its peers": "losscli and the baselines",
    "Logits split by their classes, class numbers": "Logits split by their classes, class indices",
    "Log-probabilities of class numbers, two sets of logits": (
        "Log-probabilities of class indices, two sets of logits"
    ),
    "incoming gradients other than 1": "a grad_output other than 1",
}
_GRAD_OUTPUT = "with an incoming gradient other than 1", "with a grad_output other than 1"
"""The former end of several titles, and the present one."""
_IN_JSON = (*(f'"{name}"'.encode() for name in (*KEYS, *TEXTS)), _GRAD_OUTPUT[0].encode())


def are_in(text: bytes) -> bool:
    """Tell whether JSON may have former names; a search is faster than reading it twice."""
    return any(name in text for name in _IN_JSON)


def updated(value: Any) -> Any:
    """Return parsed JSON with the present names."""
    if isinstance(value, dict):
        return {KEYS.get(key, key): updated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [updated(item) for item in value]
    return TEXTS.get(value, value).replace(*_GRAD_OUTPUT) if isinstance(value, str) else value
