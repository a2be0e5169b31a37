"""OpenEvolve's evaluator for a loss kernel: name this file as its evaluation file.

The environment variable LOSSCLI_JUDGE_LOSS names the loss that the programs compute.
"""

import os

from openevolve.evaluation_result import EvaluationResult

import losscli
from losscli.judge.verdict import Verdict, score


def evaluate(program_path: str) -> EvaluationResult:
    """Judge and time a program; ``combined_score`` is its speedup, 1 if unknown, 0 if wrong."""
    return result(losscli.judge(program_path, loss=os.environ["LOSSCLI_JUDGE_LOSS"]))


def evaluate_stage1(program_path: str) -> EvaluationResult:
    """Judge a program quickly and without times, the first stage of a cascade; 1 where right."""
    loss = os.environ["LOSSCLI_JUDGE_LOSS"]
    return result(losscli.judge(program_path, loss=loss, quick=True, timed=False))


evaluate_stage2 = evaluate


def result(verdict: Verdict) -> EvaluationResult:
    """Return a verdict as OpenEvolve takes it; where there is none, raise, so that it retries."""
    if verdict.verdict == "NOT JUDGED":
        raise RuntimeError(verdict.feedback)
    texts = {"verdict": verdict.verdict, "feedback": verdict.feedback, "log": verdict.log}
    figures = {"combined_score": score(verdict), "correct": float(verdict.right)}
    return EvaluationResult(figures, {name: text for name, text in texts.items() if text})
