"""The commands on losses over rows, as a user runs them, on a CPU."""

import json
from pathlib import Path
from typing import Any

import pytest

from losscli.cli import main


def run(*arguments: str, to: Path) -> dict[str, Any]:
    """Run a command and return its record."""
    command = [*arguments, "--device", "cpu", "--format", "json", "-o", str(to)]
    assert main.run(command) == 0
    record: dict[str, Any] = json.loads(to.read_text())
    return record


def test_verify_passes_for_cross_entropy(tmp_path: Path) -> None:
    record = run("verify", "--loss", "cross_entropy", "--quick", to=tmp_path / "verify.json")

    found = [result for result in record["results"] if result["status"] != "skipped"]
    assert {result["status"] for result in found} == {"pass"}
    assert {result["check"] for result in found} >= {
        "value",
        "input_gradient",
        "extreme_values",
        "boundary_sizes",
        "layouts",
        "row_relations",
        "wrong_targets",
    }


@pytest.mark.slow
def test_bench_times_the_config_of_rows(tmp_path: Path) -> None:
    chosen = ["--size", "256x1000", "--dtype", "float32", "--impl", "custom,reference"]
    short = ["--min-time", "1ms", "--max-time", "5ms", "--processes", "1"]
    record = run("bench", "-c", "rows", *chosen, *short, to=tmp_path / "bench.json")

    times = {
        (result["case"]["loss"], result["implementation"], result["pass"])
        for result in record["results"]
        if result["seconds"]
    }
    losses = {"cross_entropy", "kl_divergence", "token_log_probs", "token_log_probs_with_entropy"}
    assert times >= {
        (loss, implementation, pass_)
        for loss in losses
        for implementation in ("custom", "reference")
        for pass_ in ("forward", "forward_backward")
    }
