import json
from dataclasses import replace

import pytest

from losscli.cli import main
from losscli.errors import UnfitError
from losscli.losses import LINEAR_LOSSES, LOSSES, ROW_FORMS
from losscli.reasons import Code, Reason
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from losscli.verify.selftest import run as selftest
from losscli.verify.selftest.legitimate import LEGITIMATE
from losscli.verify.selftest.wrong import WRONG
from tests.machinery import MACHINERY
from tests.parameters import SLOW

PLAN = selftest.plan("cpu")
OF_MACHINERY = [test for test in PLAN if test.case.loss in (*MACHINERY, *ROW_FORMS, *LINEAR_LOSSES)]
"""`losscli self-test checks` runs those of all losses."""
WRONG_TESTS = [test for test in OF_MACHINERY if not test.legitimate]
LEGITIMATE_TESTS = [
    test
    for test in OF_MACHINERY
    if test.legitimate and test.implementation.name not in ("custom", "compile")
]

WRONG_ONE = next(test for test in WRONG_TESTS if test.implementation.name == "wrong:constant")
RIGHT_ONE = next(
    test for test in LEGITIMATE_TESTS if test.implementation.name == "legitimate:float64"
)


def first_of_each(tests):
    """Return one test an implementation, the losses in turn."""
    by_name = {}
    for test in tests:
        by_name.setdefault(test.implementation.name, []).append(test)
    return [own[place % len(own)] for place, own in enumerate(by_name.values())]


def name_of(test):
    return f"{test.implementation.name}-{test.case.loss}"


def test_self_test_has_enough_wrong_and_correct_implementations():
    assert len(WRONG) >= 25
    assert len(LEGITIMATE) >= 6
    assert {test.case.loss for test in PLAN} == {*LOSSES, *ROW_FORMS, *LINEAR_LOSSES}
    assert len({wrong.name for wrong in WRONG}) == len(WRONG)
    every, tested = (
        {test.implementation.name for test in tests if not test.legitimate}
        for tests in (PLAN, OF_MACHINERY)
    )
    assert every == tested


BULK = [CHECKS["large_outputs"]]
"""They take longer than all others, and have tests of their own."""


def without_bulk(job):
    """Run the checks of a case but for those of large results."""
    return () if any(check in BULK for _, check in job.trials) else runner.run(job)


@pytest.mark.parametrize("test", first_of_each(WRONG_TESTS), ids=name_of)
def test_each_wrong_implementation_is_caught(test):
    (result,) = selftest.run(test, without_bulk)
    assert result.failed
    assert result.check
    assert result.reason


@pytest.mark.parametrize(
    ("test", "run"),
    [
        pytest.param(test, run, id=f"{name_of(test)}-{run.__name__}", marks=SLOW if slow else [])
        for number, test in enumerate(first_of_each(LEGITIMATE_TESTS))
        for run, slow in ((without_bulk, number % 2), (runner.run, True))
    ],
)
def test_each_correct_implementation_passes(test, run):
    (result,) = selftest.run(test, run)
    assert (result.failed, result.reason) == (False, "")


def only(monkeypatch, *tests):
    """Leave these tests alone in the plan, with the last of their cases, which has one check."""
    plan = [replace(test, cases=test.cases[-1:]) for test in tests]
    monkeypatch.setattr(selftest, "plan", lambda device: plan)


def test_table_names_the_check_that_caught_each_implementation(monkeypatch, capsys):
    only(monkeypatch, WRONG_ONE, RIGHT_ONE)
    assert main.run(["self-test", "checks", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["wrong:constant", "1", "value", "1"] in [line.split() for line in lines]
    assert ["legitimate:float64", "1", "passed", "1"] in [line.split() for line in lines]
    assert lines[0] == (
        "self-test: 1 of 1 wrong implementations caught, 1 of 1 legitimate ones passed"
    )


def test_surviving_wrong_implementation_is_named_and_exits_1(monkeypatch, capsys):
    only(monkeypatch, replace(RIGHT_ONE, legitimate=False))
    assert main.run(["self-test", "checks", "--device", "cpu"]) == 1
    out = capsys.readouterr().out
    assert f"SURVIVED legitimate:float64, {RIGHT_ONE.case.loss}: no check fails it" in out


def test_failed_correct_implementation_is_named_and_exits_1(monkeypatch, capsys):
    only(monkeypatch, replace(WRONG_ONE, legitimate=True))
    assert main.run(["self-test", "checks", "--device", "cpu", "--format", "json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert (result["legitimate"], result["failed"], result["check"]) == (True, True, "value")
    assert result["status"] == "fail"


def test_self_test_accepts_device_format_and_output(monkeypatch, tmp_path):
    only(monkeypatch, RIGHT_ONE)
    output = tmp_path / "selftest.json"
    options = ["--device", "cpu", "--format", "json", "-o", str(output), "--fail-fast", "--debug"]
    assert main.run(["self-test", "checks", *options]) == 0
    assert json.loads(output.read_text())["kind"] == "self-test"


def test_self_test_stops_on_a_broken_gpu(monkeypatch):
    reason = Reason(Code.DEVICE_UNUSABLE, "cpu was made unusable earlier by wrong:stray")
    monkeypatch.setattr(runner, "broken", {"cpu": reason})
    with pytest.raises(
        UnfitError, match="float64 could not run: cpu was made unusable earlier by wrong:stray"
    ):
        list(selftest.run(RIGHT_ONE))
