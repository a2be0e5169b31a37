"""`losscli compare --fail-on` of other figures than the time: memory, energy and error."""

import json

import pytest
from msgspec.structs import replace

from losscli.compare.change import Change
from losscli.compare.figures import FIGURES
from losscli.runs.records import Error
from tests.comparing import compare
from tests.handmade import result, run


def both(write, *, name="custom", **changes):
    """Write a baseline, and a run in which one implementation has other figures."""
    before = (result("reference", median=8e-3), result("custom"))
    write("base.json", run(*before))
    write(
        "new.json", run(*(replace(r, **changes) if r.implementation == name else r for r in before))
    )


LENIENT = "--no-fail-on-undecided"
"""For records of three samples, whose time decides nothing."""


@pytest.mark.parametrize(
    ("limit", "after", "code"),
    [
        ("0", 2**21, 0),
        ("0", 2**21 - 1, 0),
        ("0", 2**21 + 1, 1),
        ("1MiB", 2**21 + 2**20, 0),
        ("1MiB", 2**21 + 2**20 + 1, 1),
    ],
)
def test_memory_is_exact(write, capsys, limit, after, code):
    both(write, peak_extra_bytes=after)
    assert compare("base.json", "new.json", "--fail-on", f"memory={limit}") == code
    told = capsys.readouterr().out
    assert (f"mean, custom, forward: 2,097,152 B, then {after:,} B" in told) == (after != 2**21)
    assert ("1 row with more memory than before, by more than" in told) == bool(code)


@pytest.mark.parametrize(("ulp", "code"), [(0.5, 0), (1.5, 0), (1.51, 1)])
@pytest.mark.parametrize("limit", ["1ulp", "1"])
def test_error_is_that_of_the_gate(write, capsys, ulp, code, limit):
    both(write, error=Error(value_ulp=0.25, grad_ulp=ulp))
    assert compare("base.json", "new.json", "--fail-on", f"error={limit}") == code
    assert ("forward: 0.50 ulp, then 1.51 ulp" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize(
    ("low", "after", "grown"),
    [(0.99, 1.09, False), (0.99, 1.11, True), (0.8, 1.11, False)],
    ids=["within the limit", "beyond the limit and the noise", "within the noise"],
)
def test_energy_is_as_noisy_as_the_time(low, after, grown):
    assert FIGURES["energy"].grown(1.0, after, Change(1.0, low, 2 - low), 0.1) is grown


def test_figure_of_a_control_fails_nothing(write):
    both(write, name="reference", peak_extra_bytes=2**30)
    assert compare("base.json", "new.json", "--fail-on", "memory=0") == 0


def test_each_figure_has_its_limit_beside_the_time(write, capsys):
    both(write, peak_extra_bytes=2**22)
    given = ("--fail-on", "time=5%,error=0", "--fail-on", "memory=0", LENIENT)
    assert compare("base.json", "new.json", *given, "--format", "json") == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["threshold"], record["limits"]) == (0.05, {"error": 0.0, "memory": 0.0})
    row = record["comparisons"][0]["rows"][1]
    assert (row["regression"], row["grown"]) == (False, ["memory"])
    assert (row["peak_extra_bytes_before"], row["peak_extra_bytes_after"]) == (2**21, 2**22)
    assert compare("base.json", "new.json", "--fail-on", "5%", LENIENT) == 0


def test_figure_that_the_new_run_lacks_fails(write, capsys):
    both(write, peak_extra_bytes=None)
    assert compare("base.json", "new.json", "--fail-on", "memory=0") == 1
    told = "FAILED: 1 row of custom lost its memory; --no-fail-on-undecided accepts that"
    assert told in capsys.readouterr().out
    assert compare("base.json", "new.json", "--fail-on", "memory=0", LENIENT) == 0


def test_energy_of_records_without_it_fails(write, capsys):
    both(write)
    assert compare("base.json", "new.json", "--fail-on", "energy=10%") == 1
    assert "FAILED: no row of new.json and base.json has energy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("memry=0", "unknown figure 'memry'. Did you mean 'memory'? Choose from: time, memory,"),
        ("memory=5%", "--fail-on memory: '5%' is no number of bytes"),
        ("energy=0", "--fail-on energy: '0' is not a fraction"),
        ("error=-1ulp", "'-1ulp' is no number of units in the last place. Write 0 or 1ulp"),
        ("5%,time=6%", "--fail-on gives two limits of time"),
        ("5", "'5' is not a fraction between 0 and 1"),
    ],
)
def test_limit_that_cannot_be_read_exits_2(write, capsys, limit, told):
    both(write)
    assert compare("base.json", "new.json", "--fail-on", limit) == 2
    assert told in capsys.readouterr().err
