"""Writes a table in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

WITHOUT_RESULT = re.compile(r"(skipped|failed| / )*")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the lines of a table, without the columns in which no row has a result."""
    kept = [
        i for i in range(len(headers)) if not all(WITHOUT_RESULT.fullmatch(row[i]) for row in rows)
    ]
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line[i] for i in kept)} |" for line in lines)
