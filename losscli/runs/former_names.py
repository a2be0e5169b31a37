"""Keys and verdicts of records that earlier versions wrote."""

from typing import Any

KEYS = {"honest": "legitimate", "cells": "configurations", "peer": "baseline"}
"""Present keys by former ones."""
VERDICTS = {"NO WORSE THAN TORCH": "SAME ERROR AS PYTORCH"}
"""Present verdicts by former ones."""


def updated(value: Any) -> Any:
    """Return parsed JSON with the present keys and verdicts."""
    if isinstance(value, dict):
        return {KEYS.get(key, key): updated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [updated(item) for item in value]
    return VERDICTS.get(value, value) if isinstance(value, str) else value
