"""The line of Python below a failure, and smaller cases that fail as well."""

import itertools
import re
import subprocess
import sys

import pytest

from losscli.cli import main
from losscli.errors import UnfitError, UsageError
from losscli.implementations import IMPLEMENTATIONS, Implementation
from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.verify import repeat, runner
from losscli.verify.checks import CHECKS
from losscli.verify.repeating import line
from losscli.verify.shrink import Shrinker
from tests.machinery import MACHINERY
from tests.parameters import naming


@pytest.fixture
def half(monkeypatch):
    """`functional` is half of what it has to be, from 20 elements on."""

    def bind(case):
        def function(input, target):
            loss = case.spec.reference(input, target, reduction=case.reduction, **case.params)
            return loss / 2 if input.numel() >= 20 else loss

        return function

    monkeypatch.setitem(IMPLEMENTATIONS, "functional", Implementation("functional", "", bind))


def value_of(case):
    job = runner.Checks(case, ((IMPLEMENTATIONS["functional"], CHECKS["value"]),))
    return runner.run(job)


@pytest.mark.parametrize(
    ("changes", "facts", "words"),
    [
        ({}, {}, '"value", "smooth_l1", (37, 101), seed=0)'),
        ({"params": {"beta": 0.5}}, {}, "beta=0.5, seed=0)"),
        (
            *({"loss": "hinge", "target_shape": (37, 101)}, {}),
            '"hinge", (37, 101), (37, 101), seed=0)',
        ),
        ({"dtype": "float16", "seed": 7, "scale": 2.0}, {}, 'dtype="float16", scale=2.0, seed=7)'),
        ({}, {"tolerance_ulp": 16.0}, "seed=0, ulp=16)"),
        ({}, {"beside": ("mse",)}, 'seed=0, beside=("mse",))'),
        ({}, {"beside": ("a", "b")}, 'seed=0, beside=("a", "b"))'),
    ],
)
def test_repeat_line_has_the_seed_and_values_that_are_not_default(make_case, changes, facts, words):
    text = line(VerifyResult(make_case(**changes), "functional", "value", FAIL, **facts))

    assert text.startswith('from losscli.verify import repeat; repeat("functional", ')
    assert text.endswith(words)


@pytest.mark.slow
def test_repeat_line_prints_the_same_failure(half, capsys):
    options = ["--device", "cpu", "--loss", "mse", "--size", "37x101", "--dtype", "float16"]
    assert main.run(["verify", *options, "--impl", "functional", "--seed", "3"]) == 1
    notes = capsys.readouterr().out.split("\n\n")
    told = [note for note in notes if note.startswith("FAIL")]
    assert len(told) > 5

    for note in told:
        report, _, code = note.partition("from losscli.verify")
        exec(f"from losscli.verify{code}", {})

        printed = " ".join(capsys.readouterr().out.split())
        verdict, _, _ = " ".join(report.split()).partition(". Shrunk from ")
        assert verdict.partition(". Fails in ")[0] in printed


def test_repeat_line_runs_in_python(make_case, capsys):
    result = VerifyResult(make_case("mse", seed=5), "reference", "gradients", FAIL)
    passed = [
        "PASS mse 37x101 float32 mean, reference, input_gradient",
        "PASS mse 37x101 float32 mean, reference, target_gradient",
    ]

    exec(line(result), {})

    assert capsys.readouterr().out.splitlines() == passed


@pytest.mark.slow
def test_repeat_line_runs_in_a_python_of_its_own(make_case):
    result = VerifyResult(make_case("mse"), "reference", "value", FAIL)

    done = subprocess.run([sys.executable, "-c", line(result)], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "PASS mse 37x101 float32 mean, reference, value\n"


def test_unknown_names_are_refused():
    with pytest.raises(UsageError, match="unknown loss 'mze'"):
        repeat("reference", "value", "mze", (3,))
    with pytest.raises(UsageError, match="unknown check 'walue'"):
        repeat("reference", "walue", "mse", (3,))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ({"dtype": "int8"}, "unknown dtype 'int8'. Choose from: float32, "),
        ({"dtype": "float23"}, "unknown dtype 'float23'. Did you mean 'float32'?"),
        ({"reduction": "avg"}, "unknown reduction 'avg'. Choose from: none, mean, sum."),
        ({"distribution": "foo"}, "unknown distribution 'foo'. Choose from: uniform, "),
        ({"device": "gpu"}, "unknown device 'gpu'. Choose from: auto, cpu, cuda, cuda:N."),
    ],
)
def test_unknown_keywords_are_refused_with_the_known_ones(word, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        repeat("reference", "value", "mse", (3,), **word)


def test_missing_gpu_is_refused():
    with pytest.raises(UnfitError, match="cuda:99"):
        repeat("reference", "value", "mse", (3,), device="cuda:99")


def test_check_that_does_not_apply_to_the_case_says_so(capsys):
    repeat("reference", "numeric", "mse", (3,))

    assert capsys.readouterr().out == (
        "NOT RUN mse 3 float32 mean: the check numeric applies only to float64, and a formula "
        "without constant factors\n"
    )


def test_failure_on_a_case_of_the_check_is_repeated_on_that_case(make_case):
    for check, loss in itertools.product(CHECKS, MACHINERY):
        with naming(check, loss):
            made = CHECKS[check].adapt(make_case(loss, shape=(64, 1024)))

            assert CHECKS[check].adapt(made) == made


def test_a_failure_is_followed_by_that_of_the_smallest_size_that_fails(half, make_case):
    case = make_case("mse", shape=(64, 1024))

    failure, smaller = Shrinker().follow(value_of(case))

    assert (failure.case, failure.shrunk_from) == (case, "")
    assert (smaller.status, smaller.case.shape) == (FAIL, (7, 7))
    assert smaller.shrunk_from == case.name


def test_a_second_failure_of_one_kind_is_not_shrunk(half, make_case):
    shrinker = Shrinker()
    cases = [make_case("mse", shape=(64, 64), dtype=dtype) for dtype in ("float32", "float16")]

    found = [len(list(shrinker.follow(value_of(case)))) for case in cases]

    assert found == [2, 1]


def test_pass_or_smallest_case_is_not_shrunk(half, make_case):
    assert [r.status for r in Shrinker().follow(value_of(make_case("mse", shape=(3,))))] == [PASS]
    assert [r.shrunk_from for r in Shrinker().follow(value_of(make_case("mse", shape=(20,))))] == [
        ""
    ]


def test_shrinking_stops_when_its_time_is_used_up(half, make_case):
    ticks = iter(range(0, 1000, 10))
    shrinker = Shrinker(seconds=15.0, clock=lambda: float(next(ticks)))

    found = list(shrinker.follow(value_of(make_case("mse", shape=(64, 1024)))))

    assert len(found) == 1  # after two tries, which pass


def test_shrinking_stops_on_a_broken_gpu(make_case):
    case = make_case("mse", device="cuda:0")
    dead = VerifyResult(case, "functional", "value", FAIL, code=Code.BROKE_DEVICE)

    assert list(Shrinker().follow([dead])) == [dead]
