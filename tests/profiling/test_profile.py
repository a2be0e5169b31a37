"""What bounds a call: what profilers say of it, and what follows."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from losscli.cli.main import run
from losscli.profile import nsight_compute, torch_profiler
from losscli.profile.record import Launch
from losscli.profile.session import decide, profile
from losscli.render.records import render
from tests.handmade import case, result

FEW_WARPS = (Path(__file__).parent / "few_warps.csv").read_text()
PLANTED = Path(__file__).parent / "planted.py"


def launch(**changes):
    """Return a launch that nothing bounds but what it waits for."""
    facts: dict[str, Any] = {
        "name": "kernel",
        "seconds": 1e-3,
        "blocks": 1000,
        "multiprocessors": 132,
        "occupancy": 0.9,
        "possible_occupancy": 1.0,
        "dram_bytes": 1e9,
        "loaded_bytes": 1e9,
        "useful_loads": 1.0,
        "stored_bytes": 1e9,
        "useful_stores": 1.0,
        "issued": 0.1,
        "stall": "waiting for memory",
        "stall_share": 0.8,
    }
    return Launch(**(facts | changes))


def test_the_longest_launch_decides():
    for changes, bound in (
        ({"dram_bytes": 4e9}, "memory"),
        ({"useful_loads": 0.125}, "uncoalesced access"),
        ({"useful_stores": 0.125}, "uncoalesced access"),
        ({"useful_stores": 0.125, "stored_bytes": 1e6, "dram_bytes": 4e9}, "memory"),
        ({"useful_loads": 0.125, "dram_bytes": 4e9, "loaded_bytes": 4e9}, "uncoalesced access"),
        ({"blocks": 32}, "too few warps"),
        ({"occupancy": 0.1, "possible_occupancy": 0.125}, "too few warps"),
        ({"occupancy": 0.1, "dram_bytes": 4e9}, "memory"),
        ({"issued": 0.7}, "instructions"),
        ({}, "latency"),
        ({"issued": None}, "unknown"),
    ):
        launches = (launch(seconds=1e-5, issued=0.9), launch(**changes))
        assert decide(launches, 1.1e-3, 0.3, 4200.0)[0] == bound, changes
    # Launches, where kernels run for little of the time.
    bound, why = decide((launch(seconds=1e-6), launch(seconds=1e-6)), 1e-5, 0.1, 4200.0)
    assert (bound, why) == ("launches", "2 launches are busy for 20% of the call's time")


def test_a_cpu_is_at_its_memory_or_in_an_operator():
    operators = (Launch("aten::mul", 3e-3, 2), Launch("aten::sum", 1e-3))
    assert decide(operators, 4e-3, 0.9, 10.0)[0] == "memory"
    assert decide(operators, 4e-3, 0.1, 10.0) == (
        "operators",
        "aten::mul takes 75% of the time of all operators",
    )
    assert decide((), 1.0, None, 1.0)[0] == "unknown"


def test_without_counters_the_limit_decides_and_matrix_products_near_it():
    bare = launch(issued=None, dram_bytes=None, loaded_bytes=None, stored_bytes=None)
    assert decide((bare,), 1.1e-3, 0.97, 4000.0)[0] == "memory"
    assert decide((launch(),), 1.1e-3, 0.95, None)[0] == "matrix products"
    assert decide((launch(),), 1.1e-3, 0.7, None)[0] == "latency"


def test_a_report_of_nsight_compute_is_read():
    kernel, reduction = nsight_compute.read(f"==PROF== Connected\n{FEW_WARPS}")
    assert kernel.name == "few_warps_kernel"
    assert kernel.seconds == pytest.approx(1038.56e-6)
    assert (kernel.blocks, kernel.threads, kernel.registers) == (32, 128, 32)
    assert (kernel.occupancy, kernel.possible_occupancy, kernel.issued) == (0.0625, 1.0, 0.0433)
    assert kernel.dram_gbps == pytest.approx((536_983_552 + 3_084_032) / 1038.56e-6 / 1e9)
    assert (kernel.loaded_bytes, kernel.useful_loads) == (16_777_216 * 32, 1.0)
    assert kernel.stall == "waiting for memory"
    assert kernel.stall_share == pytest.approx(20.0 / 22.98, rel=1e-3)
    assert decide((kernel, reduction), 1.06e-3, 0.12, 4177.0) == (
        "too few warps",
        "32 blocks for 132 multiprocessors",
    )


def event(category, name, start, length, **known):
    each = {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length}
    return each | {"tid": 1, "args": known}


def test_a_trace_has_kernels_and_the_gaps_between_them():
    known = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 40}
    trace = {
        "traceEvents": [
            event("cpu_op", "aten::mul", 0, 100),
            event("kernel", "second", 40, 10, **known),
            event("kernel", "first", 10, 20, **known, **{"est. achieved occupancy %": 50}),
            {"ph": "M", "name": "process_name"},
        ]
    }
    launches, gap = torch_profiler.read(json.dumps(trace))
    assert [each.name for each in launches] == ["first", "second"]
    assert (launches[0].blocks, launches[0].threads, launches[0].registers) == (8, 128, 40)
    assert launches[0].possible_occupancy == 0.5
    assert gap == pytest.approx(10e-6)


def test_an_operator_has_the_time_that_it_does_not_spend_in_others():
    trace = [
        event("cpu_op", "outer", 0, 100),
        event("cpu_op", "inner", 10, 30),
        event("cpu_op", "inner", 50, 20),
        event("cpu_op", "innermost", 55, 5),
    ]
    launches, gap = torch_profiler.read(json.dumps({"traceEvents": trace}))
    assert {each.name: each.calls for each in launches} == {"outer": 1, "inner": 2, "innermost": 1}
    assert [each.seconds for each in launches] == pytest.approx([50e-6, 45e-6, 5e-6])
    assert gap is None


BARE = """
import json, sys
known = {"grid": [4, 1, 1], "block": [128, 1, 1]}
event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 0, "dur": 900, "args": known}
open(sys.argv[sys.argv.index("--trace") + 1], "w").write(json.dumps({"traceEvents": [event]}))
"""


@pytest.fixture
def on_gpu(monkeypatch, tmp_path):
    """Return what profiles a result of a GPU, with a program of its own instead of ncu."""

    def profiled(ncu: str | None):
        monkeypatch.setenv("PATH", str(tmp_path))
        if ncu is not None:
            program = tmp_path / "ncu"
            program.write_text(f"#!/bin/sh\n{ncu}\n")
            program.chmod(0o755)
        timed = result("custom", median=1e-3, case=case(device="cuda:0"))
        return profile(timed, (sys.executable, "-c", BARE))[0]

    return profiled


def test_without_permission_for_counters_the_times_are_left(on_gpu):
    found = on_gpu("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'; exit 1")
    assert found.profiler == "torch.profiler"
    assert [each.name for each in found.launches] == ["k"]
    assert "NVreg_RestrictProfilingToAdminUsers=0" in found.notes[0]
    assert found.bound == "unknown"
    found = on_gpu("echo '==ERROR== LibraryNotLoaded'; exit 1")
    assert found.notes == ("ncu made no report: ==ERROR== LibraryNotLoaded",)


def test_without_nsight_compute_it_says_what_to_install(on_gpu):
    found = on_gpu(None)
    assert found.notes[0].startswith("Nsight Compute (ncu) is not installed")
    report = render(found, "table")
    assert "bound by unknown: the counters of the GPU were not read" in report
    assert max(map(len, report.splitlines())) <= 100


@pytest.mark.slow
def test_a_call_on_a_cpu_is_profiled(capsys, monkeypatch, tmp_path):
    arguments = ["profile", "--loss", "mse", "--size", "64x64", "--device", "cpu"]
    raw = tmp_path / "trace.json"
    arguments += ["--format", "json", "-o", str(raw)]
    monkeypatch.setattr(sys, "argv", ["losscli", *arguments])
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["case"], found["pass"]) == ("mse 64x64 float32 mean", "forward_backward")
    assert (found["profiler"], found["gap_seconds"]) == ("torch.profiler", None)
    assert any("mse" in each["name"] for each in found["launches"])
    assert found["bound"] in ("operators", "memory")
    assert json.loads(raw.read_text())["traceEvents"]


def test_calls_of_one_name_are_told_apart_by_their_tables(capsys, tmp_path):
    config = tmp_path / "two.yaml"
    of_both = "losses: [mse], sizes: [64], dtypes: [float32], reductions: [mean]"
    tables = "".join(f"  - {{title: {title}, {of_both}}}\n" for title in ("first", "second"))
    config.write_text(f"tables:\n{tables}")
    assert run(["profile", "-c", str(config)]) == 2
    told = capsys.readouterr().err
    assert "or its table by --filter 'table=...'" in told
    assert "mse 64 float32 mean, forward_backward, custom, table=second" in told
    chosen = ["--filter", "table=second", "--dry-run"]
    assert run(["profile", "-c", str(config), *chosen]) == 0


def test_profile_refuses_a_file_that_is_missing(capsys):
    arguments = ["--loss", "mse", "--size", "64x64", "--impl", "nothing.py"]
    assert run(["profile", *arguments, "--device", "cpu"]) == 2
    assert "nothing.py" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("near_limit", "memory"),
        ("uncoalesced", "uncoalesced access"),
        ("few_warps", "too few warps"),
    ],
)
def test_planted_bounds_are_found(name, bound, capsys, monkeypatch):
    arguments = ["profile", "--loss", "mse", "--size", "8Kx8K", "--dtype", "float32", "--pass"]
    arguments += ["forward", "--impl", f"{PLANTED}:{name}", "--format", "json"]
    monkeypatch.setattr(sys, "argv", ["losscli", *arguments])
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["profiler"], found["bound"]) == ("ncu", bound), found["why"]
