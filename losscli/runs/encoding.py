"""Encodes a run as JSON: one record, or a line for its header and for each result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def json_line(record: Mapping[str, Any]) -> str:
    """Return one line of JSON. What is not finite becomes null, for JSON has no word for it."""
    return json.dumps(finite(record), allow_nan=False)


def finite(value: Any) -> Any:
    """Replace what JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
