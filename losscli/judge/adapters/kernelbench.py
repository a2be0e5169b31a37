"""KernelBench's evaluator: ``eval_kernel_against_ref``, with the result that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from losscli.judge.adapters import judge_file

COMPLAINTS = {"DOES NOT BUILD": "compilation_error", "WRONG": "correctness_issue"}
COMPLAINTS |= dict.fromkeys(("CRASHED", "HANGS", "CHEATS"), "runtime_error")


@dataclass
class KernelExecResult:
    """What KernelBench knows of a kernel; times are medians of forward in ms, -1 where none."""

    compiled: bool = False
    correctness: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    runtime: float = -1.0
    runtime_stats: dict[str, Any] = field(default_factory=dict)
    ref_runtime: float = -1.0
    ref_runtime_stats: dict[str, Any] = field(default_factory=dict)


def eval_kernel_against_ref(
    original_model_src: str, custom_model_src: str, *_: Any, device: Any = "auto", **given: Any
) -> KernelExecResult | None:
    """Judge a ModelNew against a Model, both as sources; None asks to try again."""
    where = f"cuda:{device}" if isinstance(device, int) else str(device or "auto")
    dtype = str(given.get("precision", "float32")).removeprefix("torch.")
    asked: dict[str, Any] = {"device": where, "dtypes": (dtype,)}
    with TemporaryDirectory() as folder:
        custom, original = Path(folder, "custom.py"), Path(folder, "original.py")
        custom.write_text(custom_model_src, "utf-8")
        original.write_text(original_model_src, "utf-8")
        timed = bool(given.get("measure_performance"))
        judged = judge_file(str(custom), reference=str(original), timed=timed, **asked)
    metadata = {"hardware": judged.machine, "device": judged.device, "verdict": judged.word}
    metadata[COMPLAINTS.get(judged.word, "feedback")] = judged.feedback
    result = KernelExecResult(judged.word != "DOES NOT BUILD", judged.right, metadata)
    for each in [each for each in judged.speed if each.pass_ == "forward"][:1]:
        result.runtime = each.seconds * 1e3
        if "reference" in each.ratios:
            result.ref_runtime = result.runtime * each.ratios["reference"][0]
    return None if judged.word == "NOT JUDGED" else result
