"""KernelBench's evaluator, by losscli: ``eval_kernel_against_ref`` with the same result.

Replace ``kernelbench.eval.eval_kernel_against_ref`` with this function.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from kernelbench.eval import KernelExecResult

import losscli


def eval_kernel_against_ref(
    original_model_src: str, custom_model_src: str, *_: Any, device: Any = "auto", **given: Any
) -> KernelExecResult | None:
    """Judge a ModelNew against a Model, both as sources; None asks KernelBench to try again."""
    where = f"cuda:{device}" if isinstance(device, int) else str(device)
    timed = bool(given.get("measure_performance"))
    with TemporaryDirectory() as folder:
        custom, original = Path(folder, "custom.py"), Path(folder, "original.py")
        custom.write_text(custom_model_src)
        original.write_text(original_model_src)
        verdict = losscli.judge(str(custom), reference=str(original), timed=timed, device=where)
    if verdict.verdict == "NOT JUDGED":
        return None
    metadata = {"hardware": verdict.machine, "device": verdict.device, "verdict": verdict.verdict}
    if not verdict.right:
        metadata["correctness_issue"] = verdict.feedback
    forward = [each.seconds for each in verdict.speed if each.pass_ == "forward"]
    return KernelExecResult(
        compiled=verdict.verdict != "DOES NOT BUILD",
        correctness=verdict.right,
        metadata=metadata,
        runtime=1e3 * forward[0] if forward else -1.0,
    )
