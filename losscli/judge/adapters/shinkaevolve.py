"""ShinkaEvolve's evaluator: ``python -m losscli.judge.adapters.shinkaevolve``.

It takes ``--program_path`` and ``--results_dir`` and writes correct.json and metrics.json there.
``--loss``, or LOSSCLI_JUDGE_LOSS, names the loss that the programs compute.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from losscli.errors import LosscliError
from losscli.judge.adapters import judge_file, metrics
from losscli.runs.encoding import finite
from losscli.runs.files import replace_file


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge a program and write the two files, whatever became of it."""
    parser = argparse.ArgumentParser(description="Judge a loss kernel for ShinkaEvolve.")
    parser.add_argument("--program_path", required=True, help="Judge this file.")
    parser.add_argument("--results_dir", required=True, help="Write the results here.")
    parser.add_argument("--loss", default="", help="Judge against the oracle of this loss.")
    given = parser.parse_args(arguments)
    folder = Path(given.results_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        verdict = judge_file(given.program_path, given.loss)
    except LosscliError as error:
        _write(folder, str(error), {"combined_score": 0.0, "text_feedback": str(error)})
        raise SystemExit(f"losscli: error: {error}") from None
    public: dict[str, Any] = {**metrics(verdict), "verdict": verdict.word}
    figures = {"combined_score": public.pop("combined_score"), "public": public, "private": {}}
    wrong = "" if verdict.right else verdict.feedback
    _write(folder, wrong, {**figures, "text_feedback": verdict.feedback})


def _write(folder: Path, wrong: str, figures: dict[str, Any]) -> None:
    correct = {"correct": not wrong, "error": wrong or None}
    for name, record in (("metrics", figures), ("correct", correct)):
        replace_file(folder / f"{name}.json", [json.dumps(finite(record), indent=4)])


if __name__ == "__main__":
    main()
