import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from losscli.compare.metrics import METRICS
from losscli.compare.noise import Change
from losscli.runs.measurements import Error
from tests.comparing import compare
from tests.fabricated import machine
from tests.handmade import failed, result, run, skipped
from tests.parameters import naming, titled


@pytest.fixture
def gate(write, capsys):
    """Return a function that compares two runs; it returns the exit code and what is printed."""

    def run_gate(base, new, *options, names=("base.json", "new.json")):
        for name, made in (("base.json", base), ("new.json", new)):
            if made:
                write(name, made)
        capsys.readouterr()
        code = compare(*names, *options)
        told = capsys.readouterr()
        return code, told.out, told.err

    return run_gate


FIVE = ("--fail-on", "5%")
SLOWED = machine(2, slowed="custom", by=1.1)
QUIET, SLOW = machine(1), machine(1, slowed="custom", by=1.1)
CONTROL = run(result("reference"))


def disturbed(made):
    rows = (replace(row, conditions={"others": 0.4}) for row in made.results)
    return replace(made, results=tuple(rows))


def without(made, implementation):
    rows = (r for r in made.results if r.implementation != implementation)
    return replace(made, results=tuple(rows))


def unlike(made, make):
    """Return a run in which something else came of custom."""
    rows = (
        make(case=r.case, pass_=r.pass_, implementation="custom")
        if r.implementation == "custom"
        else r
        for r in made.results
    )
    return run(*rows)


def noisy(by):
    return machine(1, between=0.1), machine(2, between=0.1, slowed="custom", by=by)


CASES = {
    "a kernel slowed by a tenth": (QUIET, SLOWED, "5%", "0.2", ""),
    "rows that other programs disturbed": (QUIET, disturbed(SLOW), "5%"),
    "slower than a disturbed baseline": (disturbed(QUIET), SLOW, "5%"),
    "noise that hides nothing": (machine(1, between=0.002), machine(2, between=0.002), "5%"),
    "noise that can hide a slowdown": (*noisy(1.0), "5%", "5% --no-fail-on-undecided", ""),
    "noise, and a slowdown": (*noisy(1.1), "5%", "5% --no-fail-on-undecided", ""),
    "no row is judged": (CONTROL, CONTROL, "5%", "5% --no-fail-on-undecided"),
    "rows of custom are missing": (
        *(QUIET, replace(machine(2), results=machine(2).results[2:3])),
        *("50%", "50% --no-fail-on-missing"),
    ),
    "all rows of custom are missing": (QUIET, without(machine(2), "custom"), "5%", ""),
    "all rows of custom are skipped": (QUIET, unlike(machine(2), skipped), "5%", ""),
    "rows of functional are missing": (
        *(QUIET, without(machine(2), "functional"), "20%", "20% --fail-on-missing"),
    ),
    "custom fails or is absent": (QUIET, run(*unlike(QUIET, failed).results[:-3]), "5%", ""),
    "every kernel fails": (run(result()), run(failed()), "5%"),
}
"""A baseline, a run, and what ``--fail-on`` is given."""


def test_gate_fails_and_says_why_as_in_the_golden_file(gate, golden):
    texts = {}
    for title, (base, new, *limits) in CASES.items():
        for limit in limits:
            options = ["--fail-on", *limit.split()] if limit else []
            code, out, err = gate(base, new, *options)
            conclusion = out.split("\nbase: ")[0]
            texts[" ".join([f"{title}:", *options])] = f"{conclusion}{err}exit code {code}"
    golden("compare_gate.txt", titled(texts))


def test_options_of_missing_and_undecided_rows_and_other_formats(gate):
    assert gate(QUIET, without(machine(2), "functional"), "--fail-on-missing")[0] == 1
    code, _, err = gate(CONTROL, CONTROL, "--fail-on-undecided")
    assert code == 2
    assert "--fail-on-undecided needs a limit" in err
    assert gate(run(result()), run(failed()), *FIVE, "--format", "csv")[0] == 1
    code, out, _ = gate(*noisy(1.0), *FIVE, "--format", "json")
    record = json.loads(out)
    (comparison,) = record["comparisons"]
    assert (code, record["failed"]) == (1, True)
    assert comparison["undecided"] == sum(row["undecided"] for row in comparison["rows"]) == 16


def test_a_file_that_is_cut_in_its_last_line_fails_the_gate(gate, write):
    write("cut.jsonl", machine(1), "jsonl")
    # The last row is a control's here: nothing else would show that it is gone.
    lines = Path("cut.jsonl").read_text().splitlines()
    Path("cut.jsonl").write_text("\n".join([*lines[:-1], lines[-3][:200]]))
    for names in (("base.json", "cut.jsonl"), ("cut.jsonl", "base.json")):
        code, out, _ = gate(machine(1), None, "--fail-on", "50%", names=names)
        assert code == 1
        assert "FAILED: the last line of cut.jsonl is cut off" in out
        options = ("--fail-on", "50%", "--no-fail-on-missing")
        assert gate(None, None, *options, names=names)[0] == 0


def test_several_runs_are_each_compared_with_the_first(gate, write):
    write("same.json", machine(3))
    names = ("base.json", "same.json", "new.json")
    code, out, _ = gate(machine(1), SLOWED, *FIVE, "--format", "json", names=names)
    record = json.loads(out)
    assert code == 1
    assert (record["kind"], record["schema_version"], record["threshold"]) == ("compare", 2, 0.05)
    same, new = record["comparisons"]
    assert (same["run"], new["run"]) == ("same.json", "new.json")
    assert [sum(row["regression"] for row in each["rows"]) for each in (same, new)] == [0, 16]
    row = new["rows"][2]
    assert list(row) == [
        *("run", "case", "pass", "mode", "cache", "implementation", "table"),
        *("seconds_before", "seconds_after", "peak_extra_bytes_before", "peak_extra_bytes_after"),
        *("ulp_before", "ulp_after"),
        *("ratio", "ratio_low", "ratio_high", "verdict", "control", "regression"),
        *("grown", "undecided"),
    ]
    assert row["ratio"] == pytest.approx(row["seconds_after"] / row["seconds_before"])


LENIENT = "--no-fail-on-undecided"
"""For records of three samples, whose time decides nothing."""


def both(write, *, name="custom", **changes):
    """Write a baseline, and a run in which one implementation has other figures."""
    before = (result("reference", median=8e-3), result("custom"))
    after = (replace(r, **changes) if r.implementation == name else r for r in before)
    write("base.json", run(*before))
    write("new.json", run(*after))


def fails_on(*arguments):
    return compare("base.json", "new.json", "--fail-on", *arguments)


def test_memory_is_exact(write, capsys):
    mebibyte = 2**20
    for limit, after, code in (
        ("0", 2 * mebibyte, 0),
        ("0", 2 * mebibyte - 1, 0),
        ("0", 2 * mebibyte + 1, 1),
        ("1MiB", 3 * mebibyte, 0),
        ("1MiB", 3 * mebibyte + 1, 1),
    ):
        both(write, peak_extra_bytes=after)
        with naming(limit, after):
            assert fails_on(f"memory={limit}") == code
            told = capsys.readouterr().out
            shown = f"mean, custom, forward: 2,097,152 B, then {after:,} B" in told
            assert shown == (after != 2**21)
            assert ("1 row with more memory than before, by more than" in told) == bool(code)
    both(write, name="reference", peak_extra_bytes=2**30)  # a control, which fails nothing
    assert fails_on("memory=0") == 0


def test_error_is_that_of_the_gate(write, capsys):
    for ulp, code in ((0.5, 0), (1.5, 0), (1.51, 1)):
        both(write, error=Error(value_ulp=0.25, grad_ulp=ulp))
        for limit in ("1ulp", "1"):
            assert fails_on(f"error={limit}") == code
            assert ("forward: 0.50 ulp, then 1.51 ulp" in capsys.readouterr().out) == bool(code)


def test_energy_is_as_noisy_as_the_time():
    grown = METRICS["energy"].grown
    assert not grown(1.0, 1.09, Change(1.0, 0.99, 1.01), 0.1)  # within the limit
    assert grown(1.0, 1.11, Change(1.0, 0.99, 1.01), 0.1)  # beyond the limit and the noise
    assert not grown(1.0, 1.11, Change(1.0, 0.8, 1.2), 0.1)  # within the noise


def test_each_metric_has_its_limit_beside_the_time(write, capsys):
    both(write, peak_extra_bytes=2**22)
    assert fails_on("time=5%,error=0", "--fail-on", "memory=0", LENIENT, "--format", "json") == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["threshold"], record["limits"]) == (0.05, {"error": 0.0, "memory": 0.0})
    row = record["comparisons"][0]["rows"][1]
    assert (row["regression"], row["grown"]) == (False, ["memory"])
    assert (row["peak_extra_bytes_before"], row["peak_extra_bytes_after"]) == (2**21, 2**22)
    assert fails_on("5%", LENIENT) == 0


def test_figure_that_a_run_lacks_fails(write, capsys):
    both(write, peak_extra_bytes=None)
    assert fails_on("memory=0") == 1
    told = "FAILED: 1 row of custom lost its memory; --no-fail-on-undecided accepts that"
    assert told in capsys.readouterr().out
    assert fails_on("memory=0", LENIENT) == 0
    both(write)
    assert fails_on("energy=10%") == 1
    assert "FAILED: no row of new.json and base.json has energy" in capsys.readouterr().out


def test_limit_that_cannot_be_read_exits_2(write, refused):
    both(write)
    for limit, told in {
        "memry=0": "unknown metric 'memry'. Did you mean 'memory'? Choose from: time, memory,",
        "memory=5%": "--fail-on memory: '5%' is not a number of bytes",
        "energy=0": "--fail-on energy: '0' is not a fraction",
        "error=-1ulp": "'-1ulp' is not a number of units in the last place. Write 0 or 1ulp",
        "5%,time=6%": "--fail-on gives two limits of time",
        "5": "'5' is not a fraction between 0 and 1",
    }.items():
        refused(f"compare base.json new.json --fail-on {limit}", told)
