import json

from msgspec.structs import replace

from losscli.compare.change import Change
from losscli.compare.figures import FIGURES
from losscli.runs.records import Error
from tests.comparing import compare
from tests.handmade import result, run
from tests.parameters import naming

LENIENT = "--no-fail-on-undecided"
"""For records of three samples, whose time decides nothing."""


def both(write, *, name="custom", **changes):
    """Write a baseline, and a run in which one implementation has other figures."""
    before = (result("reference", median=8e-3), result("custom"))
    after = (replace(r, **changes) if r.implementation == name else r for r in before)
    write("base.json", run(*before))
    write("new.json", run(*after))


def gate(*arguments):
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
            assert gate(f"memory={limit}") == code
            told = capsys.readouterr().out
            shown = f"mean, custom, forward: 2,097,152 B, then {after:,} B" in told
            assert shown == (after != 2**21)
            assert ("1 row with more memory than before, by more than" in told) == bool(code)


def test_error_is_that_of_the_gate(write, capsys):
    for ulp, code in ((0.5, 0), (1.5, 0), (1.51, 1)):
        both(write, error=Error(value_ulp=0.25, grad_ulp=ulp))
        for limit in ("1ulp", "1"):
            assert gate(f"error={limit}") == code
            assert ("forward: 0.50 ulp, then 1.51 ulp" in capsys.readouterr().out) == bool(code)


def test_energy_is_as_noisy_as_the_time():
    grown = FIGURES["energy"].grown
    assert not grown(1.0, 1.09, Change(1.0, 0.99, 1.01), 0.1)  # within the limit
    assert grown(1.0, 1.11, Change(1.0, 0.99, 1.01), 0.1)  # beyond the limit and the noise
    assert not grown(1.0, 1.11, Change(1.0, 0.8, 1.2), 0.1)  # within the noise


def test_figure_of_a_control_fails_nothing(write):
    both(write, name="reference", peak_extra_bytes=2**30)
    assert gate("memory=0") == 0


def test_each_figure_has_its_limit_beside_the_time(write, capsys):
    both(write, peak_extra_bytes=2**22)
    assert gate("time=5%,error=0", "--fail-on", "memory=0", LENIENT, "--format", "json") == 1
    record = json.loads(capsys.readouterr().out)
    assert (record["threshold"], record["limits"]) == (0.05, {"error": 0.0, "memory": 0.0})
    row = record["comparisons"][0]["rows"][1]
    assert (row["regression"], row["grown"]) == (False, ["memory"])
    assert (row["peak_extra_bytes_before"], row["peak_extra_bytes_after"]) == (2**21, 2**22)
    assert gate("5%", LENIENT) == 0


def test_figure_that_a_run_lacks_fails(write, capsys):
    both(write, peak_extra_bytes=None)
    assert gate("memory=0") == 1
    told = "FAILED: 1 row of custom lost its memory; --no-fail-on-undecided accepts that"
    assert told in capsys.readouterr().out
    assert gate("memory=0", LENIENT) == 0
    both(write)
    assert gate("energy=10%") == 1
    assert "FAILED: no row of new.json and base.json has energy" in capsys.readouterr().out


def test_limit_that_cannot_be_read_exits_2(write, refused):
    both(write)
    for limit, told in {
        "memry=0": "unknown figure 'memry'. Did you mean 'memory'? Choose from: time, memory,",
        "memory=5%": "--fail-on memory: '5%' is no number of bytes",
        "energy=0": "--fail-on energy: '0' is not a fraction",
        "error=-1ulp": "'-1ulp' is no number of units in the last place. Write 0 or 1ulp",
        "5%,time=6%": "--fail-on gives two limits of time",
        "5": "'5' is not a fraction between 0 and 1",
    }.items():
        refused(f"compare base.json new.json --fail-on {limit}", told)
