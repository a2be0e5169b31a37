"""Write the tables of the README from the measured results in docs/results.

A table stands between `<!-- bench: FILE -->` and `<!-- end -->`. Run this file after replacing a
result: `python docs/tables.py`. A test holds that the README shows what the results say.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from losscli.units import format_bytes, format_seconds, format_size

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
RESULTS = ROOT / "docs" / "results"
TITLES = {"forward": "forward", "forward_backward": "forward + backward"}
PEERS = ("reference", "functional", "compile")


def bench_table(run: dict[str, Any]) -> str:
    """Return a row a case and pass: losscli's time, each peer's, and the ratios."""
    cells: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for result in run["results"]:
        case = result["case"]
        key = (case["loss"], format_size(case["shape"]), result["pass"])
        cells.setdefault(key, {})[result["implementation"]] = result
    rows = []
    for (loss, size, pass_), by_name in cells.items():
        custom = by_name["custom"]
        row = [f"{loss} {size}", TITLES[pass_], format_seconds(custom["seconds"]["median"])]
        row.append(f"{custom['gbps']:,.0f}")
        for peer in PEERS:
            seconds = by_name.get(peer, {}).get("seconds")
            ratio = custom["speedup"].get(peer)
            row.append(f"{format_seconds(seconds['median'])} ({ratio:.2f}x)" if seconds else "")
        row.append(format_bytes(custom["peak_extra_bytes"]))
        rows.append(row)
    peers = [f"{peer} (losscli's speedup)" for peer in PEERS]
    headers = ["loss", "pass", "losscli", "GB/s", *peers, "extra memory"]
    # A peer that ran nowhere, compile on a CPU say, needs no column.
    kept = [i for i in range(len(headers)) if any(row[i] for row in rows)]
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join(f"| {' | '.join(line[i] for i in kept)} |" for line in lines)


def with_tables(text: str) -> str:
    """Return a document with its tables made anew."""

    def table(match: re.Match[str]) -> str:
        run = json.loads((RESULTS / match["file"]).read_text())
        return f"<!-- bench: {match['file']} -->\n\n{bench_table(run)}\n\n<!-- end -->"

    return re.sub(r"<!-- bench: (?P<file>\S+) -->.*?<!-- end -->", table, text, flags=re.DOTALL)


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
