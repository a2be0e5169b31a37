import functools
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import torch

from losscli.cases.axes import DISTRIBUTIONS, DTYPES
from losscli.errors import BuildError
from losscli.implementations import Implementation, find_implementation
from losscli.losses import REDUCTIONS, find_loss
from losscli.machine import devices
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN
from losscli.truth.problem import Problem
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from losscli.verify.checks.branches import NOTHING_EXACT, has_exact_values
from losscli.verify.selftest.surgery import graft
from tests.machinery import MACHINERY
from tests.parameters import naming, square
from tests.verify.judging import judge, put, reference

PLANTED = Implementation("planted", "", lambda case: lambda x, y: x)


def raises(case, input, target):
    raise ValueError("bad launch\nand a long story")


HINGE = {"loss": "hinge", "params": {"margin": 1.5}, "distribution": "normal"}
FAILED_BY = [
    ("zeros", {}, "input_gradient"),
    ("zeros", {"reduction": "none"}, "input_gradient"),
    ("sum for mean", {}, "value"),
    ("1/rows for 1/N", {}, "value"),
    ("branch scaled", {"distribution": "normal"}, "value"),
    ("branch scaled", {**HINGE}, "value"),
    ("branches swapped", {**HINGE}, "value"),
    ("dropped tail", {}, "value"),
    ("wrong axis", {**HINGE, "shape": (64, 64)}, "value"),
    ("wrong axis", {**HINGE, "shape": (64, 64)}, "input_gradient"),
    ("ignored incoming", {}, "input_gradient"),
    ("ignored incoming", {"reduction": "none"}, "input_gradient"),
    ("squared incoming", {}, "target_gradient"),
    ("ignored parameter", {"params": {"beta": 0.25}}, "value"),
    ("ignored parameter", {**HINGE}, "value"),
    ("wrong sign", {}, "target_gradient"),
    ("wrong sign", {**HINGE}, "target_gradient"),
    ("absent gradient", {}, "gradients"),
    ("detached", {}, "gradients"),
    ("shape (1,)", {}, "value"),
    ("other dtype", {}, "value"),
    ("float16 inside", {"reduction": "none"}, "value"),
    ("narrow accumulator", {}, "value"),
    ("wrong when recording", {}, "value"),
]


@pytest.mark.parametrize(("name", "changes", "check"), FAILED_BY)
def test_a_wrong_implementation_is_failed(make_case, name, changes, check):
    checks = ("value", "gradients")
    results = {r.check: r for r in judge(make_case(**changes), name, checks=checks)}
    assert results[check].status == FAIL
    assert results[check].reason


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_empty_and_single_elements_are_judged(make_case, reduction):
    """By the checks that run on the case itself; others make a case of their own of it."""
    for shape in [(0,), (0, 4), (), (1,), (1, 1), (3, 0)]:
        case = make_case("mse", shape=shape, reduction=reduction)
        results = put(case, find_implementation("functional"), checks=own_checks(case))
        with naming(shape):
            assert {r.status for r in results} == {PASS}
            assert len(results) > 3


def own_checks(case):
    """Return the checks that run on a case as it is."""
    return [name for name, check in CHECKS.items() if check.adapt(case) == case]


def test_zero_gradient_of_a_float16_mean_fails_at_a_large_incoming_gradient(make_case):
    """A gradient of difference / beta / N is at most a subnormal for 1; with N undone it is not."""
    case = make_case("smooth_l1", shape=(128, 256), dtype="float16", params={"beta": 512.0})
    results = judge(case, "zeros", checks=("gradients",))
    (failure,) = [r for r in results if r.check == "input_gradient"]
    assert failure.status == FAIL
    assert failure.reason.startswith("grad_output 32768: ")
    problem = Problem.of(case)
    for incoming in (problem.filled(1.0), problem.filled(-3.0)):
        zeros = torch.zeros_like(problem.prediction)
        assert problem.judge("input", zeros, incoming)[0].status == PASS


def test_result_of_another_type_or_shape_is_named(make_case):
    results = judge(make_case(), lambda case, x, y: 0.5)
    told = "returned a float, not a torch.Tensor"
    assert {(r.status, r.reason) for r in results} == {(FAIL, told)}
    result = judge(make_case(), "shape (1,)", checks=("value",))[0]
    told = "expected shape (), torch.float32 on cpu, got (1,), torch.float32 on cpu"
    assert result.reason == told


def test_a_result_says_what_the_implementation_raised(make_case):
    results = judge(make_case(), raises)
    assert {r.reason for r in results} == {"raised ValueError: bad launch"}
    assert Counter(r.check for r in results) == {
        check.name: 1
        for check in CHECKS.values()
        if not check.missing(make_case()) and not check.why_not(make_case(), PLANTED)
    }
    assert {r.status for r in results} == {FAIL}


def test_errors_of_builds_of_memory_and_of_a_capture_are_told_apart(make_case):
    def raising(error):
        return judge(make_case(), Mock(side_effect=error))

    with pytest.raises(BuildError, match="no compiler"):
        raising(BuildError("no compiler"))
    found = raising(torch.OutOfMemoryError("tried to allocate"))
    assert {(r.status, r.reason) for r in found} == {(SKIPPED, "cpu ran out of memory")}
    # A GPU that is left as it was is not broken.
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    assert {r.code for r in raising(error)} == {"raised"}


@pytest.fixture
def strays(monkeypatch):
    """The check of value finds the device broken; later checks cannot use it."""

    def astray(problem, subject, tally):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore of it")
        yield

    monkeypatch.setitem(CHECKS, "value", replace(CHECKS["value"], judge=astray))
    monkeypatch.setattr(runner, "broken", {})
    monkeypatch.setattr(devices, "is_broken", lambda device: True)


def test_broken_gpu_is_blamed_on_the_next_implementation_and_the_others_are_skipped(
    make_case, strays
):
    first, *same = judge(make_case(), reference, checks=("value", "gradients", "value"))
    told = "made cpu unusable: CUDA error: an illegal memory access was encountered"
    assert (first.status, first.code, first.reason) == (FAIL, "device_error", told)

    def no_answer(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    innocent = find_implementation("reference")
    job = runner.Checks(make_case("mse"), ((innocent, CHECKS["layouts"]),))
    (other,) = runner.run(job, no_answer)
    assert len(same) == 2
    assert {(r.status, r.reason) for r in (*same, other)} == {
        (SKIPPED, "cpu was made unusable earlier by planted")
    }


def test_implementation_that_raises_the_device_error_is_blamed(make_case, strays):
    def raises(case, input, target):
        raise RuntimeError("CUDA error: misaligned address")

    first, second = judge(make_case(), raises, checks=("gradients", "boundary_sizes"))
    told = "raised RuntimeError: CUDA error: misaligned address"
    assert (first.status, first.reason) == (FAIL, told)
    assert (second.status, second.code) == (SKIPPED, "device_unusable")


def test_error_that_leaves_the_gpu_intact_skips_nothing(make_case, strays, monkeypatch):
    monkeypatch.setattr(devices, "is_broken", lambda device: False)
    failed, *others = judge(make_case(), reference, checks=("value", "gradients"))
    assert (failed.status, {r.status for r in others}) == (FAIL, {PASS})
    assert runner.broken == {}


def test_check_that_does_not_fit_is_skipped_before_allocating(make_case):
    case = make_case("mse", shape=(2**20, 2**20))
    results = judge(case, "sum for mean", checks=own_checks(case), free=2**30)
    assert {r.status for r in results} == {SKIPPED}
    assert results[0].reason == "needs 28.0 TiB, cpu has 1.0 GiB free"


def test_less_accurate_than_torch_is_a_warning(make_case):
    def careless(case, input, target):
        value = reference(case, input, target)
        exact = value.dtype == torch.float64  # beside a target of float64
        return value if exact else graft(value.detach() * (1 + 1e-6), value)

    results = judge(make_case(), careless, checks=("value", "gradients", "determinism", "layouts"))
    assert [r.status for r in results] == [WARN, PASS, PASS, PASS, WARN]
    assert "less accurate than torch" in results[0].reason


def test_loosened_case_is_judged_by_its_tolerance_and_shows_it(make_case):
    implementation = Implementation(
        "planted", "", lambda case: lambda x, y: reference(case, x, y) * (1 + 1e-5)
    )
    case = make_case()
    (strict,) = put(case, implementation, checks=("value",))
    (loose,) = put(case, implementation, checks=("value",), loosened=256.0)
    assert (strict.status, strict.tolerance) == (FAIL, "")
    assert (loose.status, loose.tolerance) == (PASS, "256 ulp")


SMALL = {"shape": (8, 24)}
SIXTEEN_BITS = ("float16", "bfloat16")


class Passing(NamedTuple):
    """Checks, the implementations that pass them, and the cases on which they do."""

    checks: tuple[str, ...]
    names: tuple[str, ...] = ("reference",)
    changes: dict[str, Any] = {}  # noqa: RUF012
    dtypes: tuple[str, ...] = DTYPES
    reductions: tuple[str, ...] = REDUCTIONS


PASSING = (
    *(Passing(("value", "gradients"), changes={"distribution": each}) for each in DISTRIBUTIONS),
    Passing(("determinism", "layouts"), changes=SMALL),
    Passing(("exact", "non_uniform_grad_output", "global_state"), ("reference", "functional")),
    Passing(("retain_graph", "accumulation")),
    Passing(("numeric",), dtypes=("float64",)),
    Passing(("repeated_backward", "mutated_data"), dtypes=("float32",)),
    Passing(("memory",), changes=SMALL),
    Passing(("stale_results",), changes=SMALL, dtypes=("float32",)),
    Passing(("coverage",), changes={"shape": (173, 101)}),
    Passing(("second_derivatives",), changes={"distribution": "normal"}, dtypes=("float32",)),
    Passing(("rounding",), dtypes=SIXTEEN_BITS, reductions=("none",)),
)


@functools.cache
def results_of(name):
    """Return the names of the results of a check of losses of two operands with gradients."""
    both = ("input_gradient", "target_gradient")
    return both if name == "gradients" else (name,)


@pytest.mark.parametrize(("loss", "reduction", "dtype"), square(MACHINERY, REDUCTIONS, DTYPES))
def test_correct_implementations_pass(make_case, loss, reduction, dtype):
    for checks, names, changes, dtypes, reductions in PASSING:
        if dtype not in dtypes or reduction not in reductions:
            continue
        case = make_case(loss, reduction=reduction, dtype=dtype, **changes)
        inexact = {} if has_exact_values(case) else {"exact": NOTHING_EXACT}
        due = sorted(
            (result, PASS, inexact.get(check, ""))
            for check in checks
            for result in results_of(check)
        )
        for name in names:
            implementation = find_implementation(name)
            if implementation.unavailable(case):
                assert (name, find_loss(loss).functional) == ("functional", None)
                continue
            with naming(name, checks, changes):
                found = put(case, implementation, checks=checks)
                assert sorted((r.check, r.status, r.reason) for r in found) == due
