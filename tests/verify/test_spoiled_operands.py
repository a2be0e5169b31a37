import itertools
from dataclasses import replace

import pytest
import torch

from losscli.implementations import Implementation, find_implementation
from losscli.losses import ELEMENT, LOSSES
from losscli.runs.records import FAIL
from losscli.truth.fingerprint import fingerprint, has_mark, mark_of
from losscli.truth.problem import Problem
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from tests.parameters import naming

ALL = [n for n, check in CHECKS.items() if not check.needs_gpu and ELEMENT in check.units]


def writes_over(operand):
    def bind(case):
        def function(input, target):
            loss = case.spec.reference(input, target, reduction=case.reduction, **case.params)
            {"input": input, "target": target}[operand].detach().add_(0.25)
            return loss

        return function

    return Implementation("writes", "", bind)


def results_of(case, *trials):
    jobs = runner.split(case, [(who, CHECKS[check]) for who, check in trials])
    return [result for job in jobs for result in runner.run(job)]


@pytest.mark.parametrize("operand", ["input", "target"])
def test_each_check_reports_an_overwritten_operand(make_case, operand):
    results = results_of(
        make_case("mse"), (writes_over(operand), "value"), (writes_over(operand), "gradients")
    )
    reason = f"modified its {operand} in place, so its result cannot be judged"
    assert [(r.check, r.status, r.reason) for r in results] == [
        ("value", FAIL, reason),
        ("input_gradient", FAIL, reason),
        ("target_gradient", FAIL, reason),
    ]


def test_operand_that_the_formula_refuses_once_overwritten_is_reported(make_case, monkeypatch):
    legitimate = LOSSES["mse"]

    def reference(input, target, *, reduction):
        if (input > 1e6).any():
            raise RuntimeError("all elements of input should be at most 1e6")
        return legitimate.reference(input, target, reduction=reduction)

    def bind(case):
        def function(input, target):
            loss = case.spec.reference(input, target, reduction=case.reduction)
            input.detach().fill_(1e7)
            return loss

        return function

    monkeypatch.setitem(LOSSES, "mse", replace(legitimate, reference=reference))
    (result,) = results_of(make_case("mse"), (Implementation("writes", "", bind), "value"))
    assert (result.status, result.code) == (FAIL, "modified_input")
    assert result.reason == "modified its input in place, so its result cannot be judged"


@pytest.mark.parametrize(
    "check", [name for name in ALL if CHECKS[name].concerns(find_implementation("reference"))]
)
def test_next_implementation_gets_fresh_operands(make_case, check):
    legitimate = find_implementation("reference")
    kinds = [("float32", "mean"), ("bfloat16", "none"), ("float64", "none")]
    cases = [make_case("smooth_l1", dtype=dtype, reduction=how) for dtype, how in kinds]
    case = next(case for case in cases if CHECKS[check].asks(case))
    alone = results_of(case, (legitimate, check))
    results = results_of(case, (writes_over("input"), check), (legitimate, check))
    own = [result for result in results if result.implementation == "reference"]
    assert own
    assert [(r.status, r.reason) for r in own] == [(r.status, r.reason) for r in alone]
    assert FAIL not in {r.status for r in own}


def test_overwritten_variant_is_found(make_case):
    problem = Problem.of(make_case("mse"))
    problem.mark()
    small = problem.variant("small", lambda: Problem.of(make_case("mse", shape=(3,))))
    assert problem.spoiled() == ""
    small.operands["target"][1] += 1
    assert problem.spoiled() == "target"


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
BLOCK = 2**18
"""Elements, as many as are summed at once on a CPU: here weights in a row sum to a power of two."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_fingerprint_shows_a_bit_a_swap_a_zero_sign_and_a_nan(dtype):
    values = torch.randn(700, 1000, dtype=dtype, generator=torch.Generator().manual_seed(0))
    values[3, 5] = 0.0
    mark = fingerprint(values)

    def changed(change):
        other = values.clone()
        change(other)
        return fingerprint(other) != mark

    assert fingerprint(values.t().contiguous().t()) == mark
    assert changed(lambda v: v[-1, -1].copy_(torch.nextafter(v[-1, -1], v[-1, -1] + 1)))
    assert changed(lambda v: v.copy_(v.flip(0)))
    assert changed(lambda v: v[3, 5].neg_())
    assert changed(lambda v: v[0, 0].fill_(torch.nan))


@pytest.mark.parametrize("dtype", DTYPES)
def test_fingerprint_shows_that_all_signs_changed(dtype):
    for count in [2, 4096, 2**17, BLOCK, 2 * BLOCK]:
        with naming(count):
            generator = torch.Generator().manual_seed(0)
            ones = torch.ones(count, dtype=dtype)
            drawn = torch.rand(count, dtype=dtype, generator=generator) + 0.5
            signs = torch.randint(2, (count,), generator=generator).to(dtype) * 2 - 1
            for values in (ones, drawn, signs):
                assert fingerprint(values) != fingerprint(-values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_fingerprint_shows_two_swapped_elements(dtype):
    for distance, (one, other) in itertools.product(
        [1, 2048, 2**16, BLOCK], [(1.0, -1.0), (1.0, 2.0), (0.0, -0.0)]
    ):
        with naming(distance, one, other):
            values = torch.ones(2 * BLOCK, dtype=dtype)
            values[5], values[5 + distance] = one, other
            traded = values.clone()
            traded[5], traded[5 + distance] = other, one
            assert fingerprint(values) != fingerprint(traded)


def test_empty_tensors_and_scalars_have_a_fingerprint():
    for shape in [(), (0,), (3, 0), (1,)]:
        with naming(shape):
            assert isinstance(fingerprint(torch.ones(shape)), int)


@pytest.mark.parametrize("count", [3, 2**17])
def test_a_mark_shows_a_change_of_a_small_and_of_a_large_tensor(count):
    values = torch.randn(count, 2).t()
    mark = mark_of(values)
    assert has_mark(values.clone(), mark)
    values[1, count // 2] += 1
    assert not has_mark(values, mark)
