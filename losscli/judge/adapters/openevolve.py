"""OpenEvolve's evaluator: name this file as its evaluation file, or import ``evaluate`` in yours.

LOSSCLI_JUDGE_LOSS names the loss that the programs compute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from losscli.errors import UnfitError
from losscli.judge.adapters import judge_file, metrics
from losscli.judge.verdict import Verdict

try:
    # OpenEvolve takes a result for one only if it is of this very class.
    from openevolve.evaluation_result import EvaluationResult  # type: ignore[import-not-found]
except ImportError:

    @dataclass
    class EvaluationResult:  # type: ignore[no-redef]
        """The same, where OpenEvolve is not installed."""

        metrics: dict[str, float]
        artifacts: dict[str, str | bytes] = field(default_factory=dict)


def evaluate(program_path: str) -> Any:
    """Judge a program, with its times; ``combined_score`` is its speedup, 0 where it is wrong."""
    return _result(judge_file(program_path))


def evaluate_stage1(program_path: str) -> Any:
    """Judge a program quickly and without times, the first stage of a cascade; 1 where right."""
    return _result(judge_file(program_path, quick=True, timed=False))


evaluate_stage2 = evaluate


def _result(verdict: Verdict) -> Any:
    if verdict.word == "NOT JUDGED":  # which says nothing of the program: OpenEvolve tries again
        raise UnfitError(verdict.feedback)
    texts = {"verdict": verdict.word, "feedback": verdict.feedback, "log": verdict.log}
    return EvaluationResult(metrics(verdict), {key: text for key, text in texts.items() if text})
