"""What each command prints, as text and as Markdown, of results that no machine has measured."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from losscli.cli import main
from losscli.compare.comparison import compare
from losscli.compare.gate import Comparisons, FailOn
from losscli.compare.history import history
from losscli.doctor.isolation import HELD, NOT_HELD, Siege, Tried
from losscli.errors import EXIT_OK
from losscli.judge.selftest import Judged
from losscli.profile.record import Launch, Profile
from losscli.render.records import render
from losscli.render.text import markdown, text
from losscli.report.verdict_block import block, conclusion
from losscli.runs.measurements import Error, Speedup
from losscli.runs.records import FAIL, SKIPPED, WARN, Run, SelfTestResult
from losscli.views import doctor, self_tests
from losscli.views.phrases import slug
from tests.documents import ROOT
from tests.fabricated import machine
from tests.handmade import case, failed, result, run, skipped
from tests.judging import RIGHT, WRONG
from tests.test_bench_selftest import RESULTS as TIMED
from tests.test_history import measured
from tests.verify.test_verify_table import checked, of_case

WIDE = {"limit_gbps": 70.0, "ratios": {"reference": Speedup(4.0, 3.9, 4.1)}}
BENCH = run(
    result("reference", median=8e-3, limit_gbps=70.0),
    result(**WIDE),
    result("compile", ratio=1.1, limit_gbps=70.0, ratios={"reference": Speedup(1.1, 0.9, 1.3)}),
    result("reference", "forward_backward", 16e-3, table="training"),
    result("custom", "forward_backward", 4e-3, error=Error(value_ulp=1.0), table="training"),
    failed(implementation="kernel.py", pass_="forward_backward", table="training"),
    skipped(implementation="liger"),
)
VERIFY = Run(
    kind="verify",
    environment=run().environment,
    results=(
        *of_case("mse", status=FAIL, reason="expected 1, got 2 at [3, 1], off by 9 ulp"),
        *of_case("mse", shape=(7,), status=FAIL, reason="expected 1, got 3 at [6], off by 9 ulp"),
        *of_case("hinge", status=WARN, reason="less accurate than torch by 3.1 x"),
        checked("layouts", "mse", status=FAIL, reason="expected 0.25, got 0.5 at [0, 1]"),
        checked("streams", "mse", status=SKIPPED, reason="runs only on a GPU"),
    ),
)
PROFILE = Profile(
    case="mse 8192x8192 bfloat16 mean",
    implementation="custom",
    pass_="forward_backward",
    device="cuda:0",
    profiler="ncu",
    command=("ncu",),
    seconds=98e-6,
    peak_fraction=0.93,
    limit_gbps=4200.0,
    launches=(
        Launch(
            *("void losscli::mse_forward<float>(float*)", 95e-6, 1, 1056, 256, 40, 0.81, 1.0, 132),
            dram_bytes=3.7e8,
            l2_bytes=3.9e8,
            issued=0.21,
            stall="waiting for memory",
            stall_share=0.8,
        ),
        Launch("finish", 2e-6, 1, 1, 256, 32, 0.1, 1.0, 132, 4096.0, 8192.0, issued=0.02),
    ),
    gap_seconds=1e-6,
    bound="memory",
    why="mse_forward moves 93% of the bytes that a copy kernel moves in its time",
)
HINGE = case(loss="hinge", params={"margin": 1.0})
CHECKS = Run(
    kind="self-test",
    environment=run().environment,
    results=(
        SelfTestResult(case(), "wrong:constant", legitimate=False, failed=True, check="value"),
        SelfTestResult(case(), "wrong:in place", legitimate=False, failed=False),
        SelfTestResult(
            HINGE, "wrong:constant", legitimate=False, failed=True, check="input_gradient"
        ),
        SelfTestResult(case(), "legitimate:float64", legitimate=True, failed=False),
        SelfTestResult(
            *(HINGE, "legitimate:float64"),
            legitimate=True,
            failed=True,
            check="exact",
            reason="1 ulp off",
        ),
    ),
)
TIMER = replace(CHECKS, kind="timer-test", results=TIMED)
JUDGED = [
    Judged(*("right.py", "legitimate", "fused", "RIGHT", "RIGHT"), (), "", True, 1.0),
    Judged(
        *("slow.py", "a wrong reference", "no gradient", "NOT JUDGED", "WRONG", ("wrong",)),
        *("expected 1, got 2", False, 1.0, "the gradient is zero"),
    ),
]
SIEGE = Siege(
    command=("losscli", "doctor", "--isolation"),
    created="",
    device="cpu",
    user="root",
    reached=("session", "memory"),
    results=(
        Tried("network", "connect by TCP", HELD, "Permission denied"),
        Tried("network", "send by UDP", NOT_HELD, "it was sent"),
    ),
)


def compared():
    before, after = machine(1), machine(2, slowed="custom", by=1.1)
    before, after = (replace(each, results=each.results[:24]) for each in (before, after))
    found = compare(before, replace(after, results=after.results[:-1]), 0.05)
    return Comparisons("base.json", {"new.json": found}, FailOn(0.05))


def of_one_row():
    def is_kept(each):
        return each.case.shape == (64, 64) and each.implementation == "custom"

    return history(measured(12, slow_from=6, between=0.005), None, is_kept)


RECORDS = {
    "bench": lambda: BENCH,
    "verify": lambda: VERIFY,
    "profile": lambda: PROFILE,
    "compare": compared,
    "history": of_one_row,
    "self-test checks": lambda: CHECKS,
    "self-test timer": lambda: TIMER,
}
"""What makes the record of each command that writes text and Markdown."""
DOCUMENTS = {
    ("self-test judge", "table"): lambda: text(self_tests.of_judge(JUDGED)),
    ("self-test judge", "md"): lambda: markdown(self_tests.of_judge(JUDGED)),
    ("doctor --isolation", "table"): lambda: text(doctor.of_isolation(SIEGE)),
    ("judge", "table"): lambda: "\n\n".join(
        [block(RIGHT), block(WRONG), conclusion([RIGHT, WRONG])]
    ),
}
LINES = (
    "runs",
    "runs show before",
    "runs show before --format md --columns min,p95,p99,max,tflops,exchange,host,energy,power",
    "export before --format=bencher",
    "export before --format=github",
    "export before --format=openmetrics",
    "list implementations",
    "list checks",
    "list columns",
    "list configs",
    "config show mine.yaml",
)
"""Command lines of commands that write text alone, or that read a run."""
CONFIG = """extends: default.yaml
losses: [{smooth_l1: {beta: 0.5}}, mse, hinge, huber, l1, log_cosh, poisson_nll, quantile, kl_div]
dtypes: bfloat16
tables: [{title: large, sizes: 32Kx32K}]
"""


def printed(line):
    """Return what a command line prints."""
    told = io.StringIO()
    with redirect_stdout(told):
        assert main.run(line.split()) == EXIT_OK
    return told.getvalue()


def rendered(make, format):
    return render(make(), format)


OUTPUTS: dict[tuple[str, str], Callable[[], str]] = {
    **{(n, f): partial(rendered, r, f) for n, r in RECORDS.items() for f in ("table", "md")},
    ("self-test timer", "csv"): lambda: render(TIMER, "csv"),
    **DOCUMENTS,
    **{(line, "md" if "md" in line.split() else "table"): partial(printed, line) for line in LINES},
}


@pytest.mark.parametrize(("command", "format"), OUTPUTS)
def test_commands_print_what_the_golden_files_have(command, format, golden, write):
    Path("mine.yaml").write_text(CONFIG)
    write("data/runs/before.jsonl", replace(BENCH, results=BENCH.results[:2]), "jsonl")
    found = OUTPUTS[command, format]().replace(str(ROOT), "ROOT").rstrip()
    name = slug(command.partition(" --format ")[0])
    golden(f"commands/{name}.{'txt' if format == 'table' else format}", f"{found}\n")
    if format == "table":
        lines = (line for line in found.splitlines() if "import repeat" not in line)
        assert max(map(len, lines)) <= 100 or command.startswith("export")
