import itertools
import re
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch

from losscli.cli import main
from losscli.errors import UnfitError, UsageError
from losscli.implementations import IMPLEMENTATIONS, Implementation
from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, WARN, VerifyResult
from losscli.truth.fingerprint import same_bits
from losscli.verify import repeat, runner
from losscli.verify.checks import CHECKS
from losscli.verify.repeating import line
from losscli.verify.selftest.surgery import graft, regrade
from losscli.verify.shrink import Shrinker
from tests.machinery import MACHINERY
from tests.parameters import naming
from tests.verify.judging import reference, result_of

put = partial(result_of, "determinism")


def changing(factor, every=3):
    """Return a loss one value of ``every``, from the second on, is off by a factor."""
    runs = itertools.count()

    def loss(case, input, target):
        value = reference(case, input, target)
        off = factor if next(runs) % every == 1 else 1.0
        return graft(value.detach() * off, value)

    return loss


def changing_gradient(factor):
    """Return a loss whose gradients are off by a factor in every second run."""
    runs = itertools.count()

    def loss(case, input, target):
        off = factor if next(runs) % 2 else 1.0
        return regrade(reference(case, input, target), lambda g: g * off)

    return loss


def test_a_spread_within_the_tolerance_is_a_warning_with_the_spread_and_a_hint(make_case):
    result = put(make_case("mse"), changing(1 + 2**-23))
    assert result.status == WARN
    assert "differ in the loss by up to 1 ulp" in result.reason
    assert "atomics" in result.reason


def changing_gradient_of_all(factors=(1.0, 1 + 2**-23, 1 - 2**-24)):
    """Return a loss whose gradients have other bits each time, within the tolerances."""
    runs = itertools.cycle(factors)

    def loss(case, *operands):
        factor = next(runs)
        return regrade(reference(case, *operands), lambda g: g * factor)

    return loss


def test_other_checks_pass_a_spread_within_the_tolerance(make_case):
    for check in ("memory", "stale_results", "retain_graph", "accumulation"):
        spreads = (changing(1 + 2**-23, every) for every in (2, 5, 7))
        for number, function in enumerate((*spreads, changing_gradient_of_all())):
            with naming(check, number):
                assert result_of(check, make_case("mse"), function).status in (PASS, WARN)


def missing_gradient():
    """Return a loss that has no gradient of the target in every second run."""
    runs = itertools.count()

    def loss(case, input, target):
        return reference(case, input, target.detach() if next(runs) % 2 else target)

    return loss


@pytest.mark.parametrize(
    ("function", "reduction", "reason"),
    [
        (changing(1.001), "mean", "run 2 differs from run 1, loss: expected 0."),
        (changing_gradient(1.001), "none", "gradient: expected "),
        (missing_gradient(), "mean", "target gradient"),
    ],
)
def test_a_spread_beyond_the_tolerance_fails(make_case, function, reduction, reason):
    result = put(make_case("mse", reduction=reduction), function)
    assert result.status == FAIL
    assert reason in result.reason


def test_deterministic_wrong_result_passes_determinism(make_case):
    assert put(make_case("mse"), lambda case, x, y: 2 * reference(case, x, y)).status == PASS


def test_determinism_compares_bits_of_nan_and_signed_zero():
    nan, zero = torch.tensor([1.0, torch.nan]), torch.zeros(3)
    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, -zero)
    assert not same_bits(zero, zero.double())
    assert not same_bits(zero, None)
    assert same_bits(None, None)
    assert same_bits(torch.ones(4, 6).t(), torch.ones(6, 4))


def test_determinism_makes_twenty_calls(make_case):
    runs = itertools.count(1)
    seen = []

    def loss(case, input, target):
        seen.append(next(runs))
        return reference(case, input, target)

    assert put(make_case("mse"), loss).status == PASS
    assert seen[-1] == 20


def test_an_order_that_changes_only_where_threads_share_a_sum_is_found(make_case):
    """The noise of atomic additions of a kernel that gives a small case to one thread."""
    runs = itertools.count()

    def loss(case, input, target):
        value = reference(case, input, target)
        parts = input.numel() // 2**14
        off = 1 + 2.0**-23 if parts > 1 and next(runs) % 2 else 1.0
        return graft(value.detach() * off, value)

    result = put(make_case("mse"), loss)
    assert (result.status, "differ in the loss" in result.reason) == (WARN, True)


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
        ({}, {"interleaved": ("mse",)}, 'seed=0, interleaved=("mse",))'),
        ({}, {"interleaved": ("a", "b")}, 'seed=0, interleaved=("a", "b"))'),
    ],
)
def test_repeat_line_has_the_seed_and_values_that_are_not_default(make_case, changes, facts, words):
    text = line(VerifyResult(make_case(**changes), "functional", "value", FAIL, **facts))
    assert text.startswith('from losscli.verify import repeat; repeat("functional", ')
    assert text.endswith(words)


@pytest.mark.slow
def test_repeat_line_prints_the_same_failure(half, capsys):
    options = ["--device", "cpu", "--loss", "mse", "--size", "37x101", "--dtype", "float16"]
    assert main.run(["verify", *options, "--impl", "functional", "--seed", "3", "-v"]) == 1
    notes = capsys.readouterr().out.split("\n\n")
    told = [note for note in notes if note.startswith("FAIL")]
    assert len(told) > 5
    for note in told:
        report, _, code = note.partition("from losscli.verify")
        exec(f"from losscli.verify{code}", {})
        printed = " ".join(capsys.readouterr().out.split())
        verdict, _, _ = " ".join(report.split()).partition(". To repeat it ")
        assert verdict.partition(". Shrunk from ")[0].partition(". Fails in ")[0] in printed


def test_repeat_line_runs_in_python(make_case, capsys):
    result = VerifyResult(make_case("mse", seed=5), "reference", "gradients", FAIL)
    passed = [
        "PASS mse 37x101 float32 mean, reference, input_gradient",
        "PASS mse 37x101 float32 mean, reference, target_gradient",
    ]
    exec(line(result), {})
    assert capsys.readouterr().out.splitlines() == passed


def test_repeat_takes_other_losses_by_their_former_keyword(make_case, capsys):
    result = VerifyResult(make_case("mse"), "reference", "value", FAIL, interleaved=("hinge",))
    exec(line(result), {})
    exec(line(result).replace("interleaved=", "beside="), {})
    passed = "PASS mse 37x101 float32 mean, reference, value"
    assert capsys.readouterr().out.splitlines() == [passed] * 2


@pytest.mark.slow
def test_repeat_line_runs_in_a_python_of_its_own(make_case):
    result = VerifyResult(make_case("mse"), "reference", "value", FAIL)
    done = subprocess.run([sys.executable, "-c", line(result)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "PASS mse 37x101 float32 mean, reference, value\n"


REFUSED = {
    "unknown loss 'mze'": {"loss": "mze"},
    "unknown check 'walue'": {"check": "walue"},
    "unknown dtype 'int8'. Choose from: float32, ": {"dtype": "int8"},
    "unknown dtype 'float23'. Did you mean 'float32'?": {"dtype": "float23"},
    "unknown reduction 'avg'. Choose from: none, mean, sum.": {"reduction": "avg"},
    "unknown distribution 'foo'. Choose from: uniform, ": {"distribution": "foo"},
    "unknown device 'gpu'. Choose from: auto, cpu, cuda, cuda:N.": {"device": "gpu"},
    "cuda:99": {"device": "cuda:99"},
}


def test_unknown_names_and_a_missing_gpu_are_refused_with_the_known_ones():
    for message, word in REFUSED.items():
        given: dict[str, Any] = {
            "implementation": "reference",
            "check": "value",
            "loss": "mse",
            "shape": (3,),
        }
        error = UnfitError if message == "cuda:99" else UsageError
        with pytest.raises(error, match=re.escape(message)):
            repeat(**given | word)


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


def test_a_second_failure_of_one_kind_a_pass_and_the_smallest_case_are_not_shrunk(half, make_case):
    def found(shrinker, **changes):
        return [r.status for r in shrinker.follow(value_of(make_case("mse", **changes)))]

    shrinker = Shrinker()
    assert found(shrinker, shape=(64, 64)) == [FAIL, FAIL]
    assert found(shrinker, shape=(64, 64), dtype="float16") == [FAIL]
    assert found(Shrinker(), shape=(3,)) == [PASS]
    assert found(Shrinker(), shape=(20,)) == [FAIL]


def test_shrinking_stops_when_its_time_is_used_up(half, make_case):
    ticks = iter(range(0, 1000, 10))
    shrinker = Shrinker(seconds=15.0, clock=lambda: float(next(ticks)))
    found = list(shrinker.follow(value_of(make_case("mse", shape=(64, 1024)))))
    assert len(found) == 1  # after two tries, which pass


def test_shrinking_stops_on_a_broken_gpu(make_case):
    case = make_case("mse", device="cuda:0")
    dead = VerifyResult(case, "functional", "value", FAIL, code=Code.DEVICE_ERROR)
    assert list(Shrinker().follow([dead])) == [dead]
