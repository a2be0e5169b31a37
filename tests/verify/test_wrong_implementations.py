"""Deliberately wrong implementations fail in the runner that losscli's own use."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from judging import judge, put, reference

from losscli.axes import DISTRIBUTIONS, DTYPES
from losscli.errors import BuildError
from losscli.implementations import Implementation, find_implementation
from losscli.losses import LOSSES, REDUCTIONS
from losscli.runs.records import FAIL, PASS, SKIPPED, WARN
from losscli.verify import runner
from losscli.verify.checks import CHECKS, find_check
from losscli.verify.selftest.surgery import graft, regrade

PLANTED = Implementation("planted", "", lambda case: lambda x, y: x)


def zero_gradient(case, input, target):
    value = reference(case, input, target)
    return graft(value.detach(), 0 * value)


def zero_gradient_when_small(case, input, target):
    """Underflows where it need not: what an absolute tolerance never sees."""
    return regrade(
        reference(case, regrade(input, lambda g: g * (g.abs() > 1e-6)), target), lambda g: g
    )


def sum_for_mean(case, input, target):
    return reference(case, input, target, reduction="sum")


def rows_for_elements(case, input, target):
    return reference(case, input, target, reduction="sum") / input.shape[0]


def half_is_049(case, input, target):
    return 0.98 * reference(case, input, target)


def quadratic_half_is_049(case, input, target):
    inside = (input - target).abs() < case.params["beta"]
    elements = reference(case, input, target, reduction="none")
    elements = torch.where(inside, 0.98 * elements, elements)
    return elements.mean()


def dropped_tail(case, input, target):
    """The elements after the last whole vector of 8 count as zero."""
    elements = reference(case, input, target, reduction="none").flatten()
    kept = len(elements) - len(elements) % 8
    return elements[:kept].sum() / len(elements)


def wrong_broadcast_axis(case, input, target):
    if input.dim() == 1:  # it has one axis, and would become a matrix
        return reference(case, input, target)
    return reference(case, input, target[: input.shape[0], None])


def ignored_incoming_gradient(case, input, target):
    return regrade(reference(case, input, target), torch.ones_like)


def incoming_gradient_twice(case, input, target):
    return regrade(reference(case, input, target), lambda g: g * g)


def ignored_parameter(case, input, target):
    return reference(case, input, target, **{p.name: p.default for p in case.spec.parameters})


def no_clamp(case, input, target):
    return (case.params["margin"] - input * target).mean()


def wrong_sign_of_the_target_gradient(case, input, target):
    return reference(case, input, regrade(target, torch.neg))


def absent_target_gradient(case, input, target):
    return reference(case, input, target.detach())


def detached(case, input, target):
    return reference(case, input, target).detach()


def shape_of_one(case, input, target):
    return reference(case, input, target).reshape(1)


def wrong_dtype_out(case, input, target):
    return reference(case, input, target).double()


def half_inside(case, input, target):
    return reference(case, input.half(), target.half()).float()


def narrow_accumulator(case, input, target):
    """Carries the sum from row to row in bfloat16."""
    elements = reference(case, input, target, reduction="none")
    total = torch.zeros((), dtype=torch.bfloat16)
    for row in elements.detach():
        total += row.sum().bfloat16()
    return graft(total.float() / elements.numel(), elements.mean())


def wrong_only_when_recording(case, input, target):
    value = reference(case, input, target)
    return 1.01 * value if value.requires_grad else value


def raises(case, input, target):
    raise ValueError("bad launch\nand a long story")


HINGE = {"loss": "hinge", "params": {"margin": 1.5}, "distribution": "normal"}
WRONG = [
    (zero_gradient, {}, "input_gradient"),
    (zero_gradient, {"dtype": "float16", "shape": (1024, 1024)}, "input_gradient"),
    (zero_gradient, {"reduction": "none"}, "input_gradient"),
    (zero_gradient_when_small, {"shape": (2048, 1024)}, "input_gradient"),
    (sum_for_mean, {}, "value"),
    (rows_for_elements, {}, "value"),
    (half_is_049, {}, "value"),
    (quadratic_half_is_049, {"distribution": "normal"}, "value"),
    (dropped_tail, {}, "value"),
    (wrong_broadcast_axis, {**HINGE, "shape": (64, 64)}, "value"),
    (wrong_broadcast_axis, {**HINGE, "shape": (64, 64)}, "input_gradient"),
    (ignored_incoming_gradient, {}, "input_gradient"),
    (ignored_incoming_gradient, {"reduction": "none"}, "input_gradient"),
    (incoming_gradient_twice, {}, "target_gradient"),
    (ignored_parameter, {"params": {"beta": 0.25}}, "value"),
    (ignored_parameter, {**HINGE}, "value"),
    (no_clamp, {**HINGE}, "value"),
    (wrong_sign_of_the_target_gradient, {}, "target_gradient"),
    (wrong_sign_of_the_target_gradient, {**HINGE}, "target_gradient"),
    (absent_target_gradient, {}, "gradients"),
    (detached, {}, "gradients"),
    (shape_of_one, {}, "value"),
    (wrong_dtype_out, {}, "value"),
    (half_inside, {"reduction": "none"}, "value"),
    (narrow_accumulator, {}, "value"),
    (wrong_only_when_recording, {}, "value"),
    (raises, {}, "value"),
]


@pytest.mark.parametrize(
    ("wrong", "changes", "check"),
    WRONG,
    ids=[f"{f.__name__}-{'-'.join(map(str, c.values()))}-{k}" for f, c, k in WRONG],
)
def test_wrong_implementation_fails_its_check(make_case, wrong, changes, check):
    results = {result.check: result for result in judge(make_case(**changes), wrong)}

    assert results[check].status == FAIL
    assert results[check].reason


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_pytorchs_own_formula_passes(make_case, loss, reduction, dtype, distribution):
    case = make_case(loss, reduction=reduction, dtype=dtype, distribution=distribution)

    results = put(case, find_implementation("reference"), checks=("value", "gradients"))

    assert [(r.check, r.status, r.reason) for r in results] == [
        ("value", PASS, ""),
        ("input_gradient", PASS, ""),
        ("target_gradient", PASS, ""),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_pytorchs_own_formula_is_deterministic_in_every_layout(make_case, loss, reduction, dtype):
    case = make_case(loss, shape=(8, 24), reduction=reduction, dtype=dtype)

    results = put(case, find_implementation("reference"), checks=("determinism", "layouts"))

    assert [(r.check, r.status, r.reason) for r in results] == [
        ("determinism", PASS, ""),
        ("layouts", PASS, ""),
    ]


@pytest.mark.parametrize("shape", [(0,), (0, 4), (), (1,), (1, 1), (3, 0)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_empty_and_single_elements_are_judged(make_case, shape, reduction):
    results = put(
        make_case("mse", shape=shape, reduction=reduction), find_implementation("functional")
    )

    # PyTorch's own sum over many rows is warned of.
    assert {r.status for r in results if r.check != "broadcasts"} == {PASS}
    assert FAIL not in {r.status for r in results}


def test_zero_gradient_of_a_float16_mean_fails_at_a_large_incoming_gradient(make_case):
    """At 2^24 elements a float16 gradient for 1 is 0 to 2 subnormals: 1/N undone, it is not."""
    case = make_case("mse", shape=(4096, 4096), dtype="float16")
    results = judge(case, zero_gradient, checks=("gradients",))

    (failure,) = [r for r in results if r.check == "input_gradient"]
    assert failure.status == FAIL
    assert failure.reason.startswith("incoming gradient 32768: ")


def test_result_that_is_no_tensor_fails(make_case):
    results = judge(make_case(), lambda case, x, y: 0.5)

    assert {(r.status, r.reason) for r in results} == {(FAIL, "returned 0.5, not a tensor")}


def test_a_wrong_shape_is_named(make_case):
    result = judge(make_case(), shape_of_one)[0]

    assert result.reason == (
        "expected shape (), torch.float32 on cpu, got (1,), torch.float32 on cpu"
    )


def test_a_result_says_what_the_implementation_raised(make_case):
    results = judge(make_case(), raises)

    assert {r.reason for r in results} == {"raised ValueError: bad launch"}
    assert Counter(r.check for r in results) == {
        check.name: 1
        for check in CHECKS.values()
        if not check.needs_gpu and check.asks(make_case()) and check.concerns(PLANTED)
    }
    assert {r.status for r in results} == {FAIL}


def test_a_build_that_fails_is_not_the_implementations_fault(make_case):
    def needs_a_build(case, input, target):
        raise BuildError("no compiler")

    with pytest.raises(BuildError, match="no compiler"):
        judge(make_case(), needs_a_build)


def test_memory_that_runs_out_is_not_the_implementations_fault(make_case):
    def greedy(case, input, target):
        raise torch.OutOfMemoryError("tried to allocate")

    assert {(r.status, r.reason) for r in judge(make_case(), greedy)} == {
        (SKIPPED, "cpu ran out of memory")
    }


@pytest.fixture
def strays(monkeypatch):
    """The check of value finds the device broken; later checks cannot use it."""

    def astray(problem, subject):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore of it")
        yield

    monkeypatch.setitem(CHECKS, "value", replace(CHECKS["value"], run=astray))
    monkeypatch.setattr(runner, "broken", {})
    monkeypatch.setattr(runner.devices, "is_broken", lambda device: True)


def test_broken_gpu_is_blamed_on_the_next_implementation(make_case, strays):
    (result,) = judge(make_case(), reference, checks=("value",))

    assert (result.status, result.code, result.reason) == (
        FAIL,
        "broke_device",
        "broke cpu: CUDA error: an illegal memory access was encountered",
    )


def test_implementations_after_a_broken_gpu_are_skipped(make_case, strays):
    (_, *same) = judge(make_case(), reference, checks=("value", "gradients", "value"))

    def no_answer(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    innocent = find_implementation("reference")
    job = runner.Job(make_case("mse"), ((innocent, CHECKS["layouts"]),))
    (other,) = runner.run(job, no_answer)

    assert len(same) == 2
    assert {(r.status, r.reason) for r in (*same, other)} == {
        (SKIPPED, "cpu was broken earlier by planted")
    }


def test_implementation_that_raises_the_device_error_is_blamed(make_case, strays):
    def raises(case, input, target):
        raise RuntimeError("CUDA error: misaligned address")

    first, second = judge(make_case(), raises, checks=("gradients", "sizes"))

    assert (first.status, first.reason) == (
        FAIL,
        "raised RuntimeError: CUDA error: misaligned address",
    )
    assert (second.status, second.code) == (SKIPPED, "device_broken")


def test_error_that_leaves_the_gpu_intact_skips_nothing(make_case, strays, monkeypatch):
    monkeypatch.setattr(runner.devices, "is_broken", lambda device: False)

    failed, *others = judge(make_case(), reference, checks=("value", "gradients"))

    assert (failed.status, {r.status for r in others}) == (FAIL, {PASS})
    assert runner.broken == {}


def test_check_that_does_not_fit_is_skipped_before_allocating(make_case):
    case = make_case("mse", shape=(2**20, 2**20))

    results = judge(case, sum_for_mean, free=2**30)

    # The others are put to a small case of their own.
    assert {r.status for r in results if find_check(r.check).adapt(case) == case} == {SKIPPED}
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

    strict = put(case, implementation)
    loose = put(case, implementation, loosened=256.0)

    assert (strict[0].status, strict[0].tolerance) == (FAIL, "")
    assert (loose[0].status, loose[0].tolerance) == (PASS, "256 ulp")
