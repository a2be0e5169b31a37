"""Break the kernels on purpose, one line at a time, and see whether `losscli verify` finds out.

`python -m tests.mutate` applies each mutation of the CPU's sources to a copy of the checkout,
builds it there and verifies it; `--device cuda` those of the CUDA kernels, on a machine with a GPU.
A line a mutation: killed, and by which check, or survived. The exit code is 1 if one survives that
is not known to change nothing. `--only WORD` runs those whose description has the word. Each takes
a build and a run of verify, together about a minute on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("losscli", "csrc", "configs")


@dataclass(frozen=True)
class Mutation:
    """One textual change."""

    file: str
    """Under csrc."""
    old: str
    """Stands in the file once, or the first of several is meant."""
    new: str
    mistake: str
    equivalent: str = ""
    """Why no input tells it from the original; empty where one does."""


LOSSES = (
    Mutation("losses/smooth_l1.h", "Real(0.5) * distance *", "Real(0.49) * distance *", "a factor"),
    Mutation("losses/smooth_l1.h", "- Real(0.5) * beta", "- Real(0.5)", "beta left out"),
    Mutation("losses/smooth_l1.h", "? Real(-1)", "? Real(1)", "the sign of the linear gradient"),
    Mutation(
        "losses/smooth_l1.h",
        "distance < beta ?",
        "distance <= beta ?",
        "< for <= at the kink",
        equivalent="both branches give beta / 2 there, and the same gradient",
    ),
    Mutation("losses/smooth_l1.h", "< beta ? reciprocal", "> beta ? reciprocal", "the curvature"),
    Mutation("losses/mse.h", "half + half", "half", "a factor of the gradient"),
    Mutation("losses/mse.h", "{slope, -slope}", "{slope, slope}", "the target's sign"),
    Mutation("losses/hinge.h", "left < Real(0) ? Real(0) : left", "left", "no clamp"),
    Mutation(
        "losses/hinge.h",
        "gap(input, target) >= Real(0) ? -",
        "gap(input, target) > Real(0) ? -",
        "> for >= at the kink of the gradient",
    ),
    Mutation(
        "losses/hinge.h",
        "{slope * target, slope * input}",
        "{slope * target, slope * target}",
        "the target's gradient",
    ),
)

CPU = (
    Mutation(
        "cpu/instantiate.cpp", "whole < tile.count ?", "whole + 1 < tile.count ?", "a tail of one"
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "lane = tile.count; lane < kLanes",
        "lane = kLanes; lane < kLanes",
        "padding counts",
    ),
    Mutation(
        "cpu/instantiate.cpp",
        "kOutput ? scale * g[lane] : scale",
        "kOutput ? g[lane] : scale",
        "the scale of a tensor of incoming gradients",
        equivalent="without a reduction the scale is 1",
    ),
    Mutation(
        "cpu/engine.cpp",
        "std::min(begin + kChunk, arguments.size)",
        "begin + kChunk - kTile",
        "the last tile of a chunk",
    ),
    Mutation(
        "cpu/engine.cpp",
        "if (arguments.skip_unit_gradient && factor == 1.0) return;",
        "if (arguments.skip_unit_gradient) return;",
        "an incoming gradient other than 1",
    ),
    Mutation(
        "cpu/engine.cpp",
        "static_cast<Real>(arguments.scale * factor)",
        "static_cast<Real>(factor)",
        "1/N of the gradient",
    ),
    Mutation(
        "cpu/engine.cpp",
        "shared.inner - within % shared.inner",
        "shared.inner",
        "where a run of a shared element begins",
    ),
    Mutation(
        "cpu/engine.cpp",
        "if (++element == shared.period) element = 0;",
        "++element;",
        "a shared element's wrap",
    ),
    Mutation("cpu/engine.cpp", "slice / widths * band;", "slice / widths;", "the rows of a band"),
    Mutation(
        "cpu/chunk_sums.h",
        "chunk < chunks_; ++chunk",
        "chunk + 1 < chunks_; ++chunk",
        "the last chunk",
    ),
    Mutation("cpu/lanes.h", "width > 0; width /= 2", "width > 1; width /= 2", "half of the lanes"),
    Mutation(
        "binding/kernels.cpp",
        "1.0 / static_cast<double>(size)",
        "1.0 / static_cast<double>(size + 1)",
        "N",
    ),
    Mutation("binding/layout.cpp", "strides[d] != form.period", "false", "strides are believed"),
    Mutation(
        "binding/layout.cpp",
        "form.inner *= shape_[d];",
        "form.inner = shape_[d];",
        "several repeated dimensions",
    ),
    Mutation(
        "binding/nodes.h",
        "if (!torch::autograd::get_current_graph_task_keep_graph()) {",
        "if (true) {",
        "a retained graph hands the same gradient out again",
    ),
)

CUDA = (
    Mutation(
        "cuda/flat_kernel.cuh",
        "i < packs; i += kThreads",
        "i + kThreads < packs; i += kThreads",
        "a ragged tile",
    ),
    Mutation(
        "cuda/flat_kernel.cuh", "blockIdx.x == 0 && last < arguments.size", "false", "the tail"
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "carried += sum;\n  }",
        "carried = sum;\n  }",
        "all but the last tile",
    ),
    Mutation(
        "cuda/flat_kernel.cuh",
        "int64_t{gridDim.x} * kPacks",
        "int64_t{gridDim.x} * kPacks * 2",
        "every second tile",
    ),
    Mutation(
        "cuda/rows_kernel.cuh",
        "row += rows.down * step",
        "row += 2 * rows.down * step",
        "half of the rows",
    ),
    Mutation(
        "cuda/rows_kernel.cuh", "line < rows.height && column", "column", "threads beyond the rows"
    ),
    Mutation(
        "cuda/reduce.cuh",
        "if (blockIdx.x != 0) {",
        "if (blockIdx.x > 1) {",
        "the second block's sum",
    ),
    Mutation("cuda/reduce.cuh", "    posted[i] = 0;\n", "", "posted sums that stay"),
    Mutation(
        "cuda/reduce.cuh",
        "  value = warp_sum(value);\n  __syncthreads();",
        "  __syncthreads();",
        "all lanes but one",
    ),
    Mutation("cuda/reduce.cuh", "min(each, count - first)", "each", "the last group's end"),
    Mutation(
        "cuda/block_kernel.cuh",
        "const unsigned last = packs * P::kCount + i;",
        "const unsigned last = packs * P::kCount + i + 1;",
        "one of the last elements",
    ),
    Mutation(
        "cuda/block_kernel.cuh", "* arguments.period", "* (arguments.period + 1)", "a repeated row"
    ),
    Mutation("cuda/worker.cuh", "factor *= incoming;", "", "the incoming gradient"),
    Mutation(
        "cuda/worker.cuh",
        "arguments.skip_unit_gradient && incoming == 1",
        "arguments.skip_unit_gradient",
        "an incoming gradient other than 1",
    ),
    Mutation("cuda/memory.cuh", "return element - period_;", "return element;", "the end of a row"),
    Mutation("cuda/memory.cuh", "aligned(data_ + first)", "true", "misaligned operands"),
    Mutation(
        "cuda/slots.cu", "device->slots + next;", "device->slots;", "one slot for all streams"
    ),
    Mutation(
        "cuda/shared_gradient.cuh",
        "other < kRowsAtOnce",
        "other < kRowsAtOnce - 1",
        "an eighth of the rows",
    ),
    Mutation("cuda/shared_gradient.cuh", "band < cut.bands", "band < 1", "all bands but one"),
    Mutation(
        "cuda/double_backward.cuh",
        "toward_y * hessian.target_target",
        "toward_x * hessian.target_target",
        "a second derivative",
    ),
)


def mutations(device: str) -> tuple[Mutation, ...]:
    """Return those that a device's kernels show."""
    return (*LOSSES, *(CPU if device == "cpu" else CUDA))


def apply(mutation: Mutation, root: Path) -> None:
    """Change a copy of the checkout."""
    path = root / "csrc" / mutation.file
    text = path.read_text()
    assert mutation.old in text, f"{mutation.file} has no {mutation.old!r}"
    path.write_text(text.replace(mutation.old, mutation.new, 1))


def verify(root: Path, device: str) -> str:
    """Build and verify a copy; return which check failed first, or nothing."""
    result = root / "result.json"
    command = [sys.executable, "-m", "losscli", "verify", "--device", device]
    command += ["--format", "json", "-o", str(result)]
    environ = os.environ | {"PYTHONPATH": str(root), "LOSSCLI_CACHE_DIR": str(root / "cache")}
    done = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    if not result.exists():
        lines = done.stderr.strip().splitlines()
        return f"exit code {done.returncode}: {lines[-1] if lines else 'nothing said'}"
    results = json.loads(result.read_text())["results"]
    first = next((r for r in results if r["status"] == "fail"), None)
    return f"{first['check']} of {first['case']['loss']}" if first else "no check"


def run(mutation: Mutation, device: str) -> bool:
    """Try one mutation, print its line, and tell whether the outcome is as it should be."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="losscli-mutant-") as folder:
        root = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        apply(mutation, root)
        killer = verify(root, device)
    outcome = f"killed by {killer}" if killer else "SURVIVED"
    if mutation.equivalent and not killer:
        outcome = f"equivalent: {mutation.equivalent}"
    seconds = time.monotonic() - started
    print(f"{mutation.file}, {mutation.mistake}: {outcome} ({seconds:.0f} s)", flush=True)
    return bool(killer) != bool(mutation.equivalent)


def main(arguments: list[str] | None = None) -> int:
    """Run the mutations one after another."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="run those whose description has this word")
    given = parser.parse_args(arguments)
    chosen = [m for m in mutations(given.device) if given.only in f"{m.file}, {m.mistake}"]
    right = [run(mutation, given.device) for mutation in chosen]
    killed = sum(right) - sum(bool(m.equivalent) for m in chosen)
    print(f"{killed} of {len(chosen)} killed, {len(chosen) - sum(right)} not as expected")
    return 0 if all(right) else 1


if __name__ == "__main__":
    raise SystemExit(main())
