"""The check of 16-bit results with a bias."""

import itertools

import pytest
import torch

from losscli.implementations import find_implementation
from losscli.losses import LOSSES
from losscli.runs.records import FAIL, PASS
from losscli.verify.selftest.surgery import graft
from tests.parameters import naming
from tests.verify.judging import judge, put, reference

CHECKS = ("rounding",)


NUMBERS = [
    (loss, next(p.name for p in spec.parameters if not (p.is_switch or p.is_integer)))
    for loss, spec in LOSSES.items()
    if not all(p.is_switch or p.is_integer for p in spec.parameters)
]
"""The losses that have a parameter which is a number, with its name."""


def cut_off(case, *operands):
    loss = reference(case, *operands)
    exact = reference(case, *(operand.detach().float() for operand in operands))
    bits = exact.view(torch.int32) & -(2**16)
    return graft(bits.view(torch.float32).to(loss.dtype), loss)


def test_truncating_implementation_fails(make_case):
    case = make_case("mse", dtype="bfloat16", reduction="none")

    (result,) = judge(case, cut_off, checks=CHECKS)
    (plain,) = judge(case, cut_off, checks=("boundary_sizes",))

    assert plain.status == PASS
    assert result.status == FAIL
    assert result.reason.startswith("loss: expected no bias on average, but results are 0.4")
    assert result.reason.endswith("ulp too small")


@pytest.mark.parametrize(("loss", "name"), NUMBERS)
def test_parameter_between_two_numbers_of_a_dtype_makes_no_bias(make_case, loss, name):
    for dtype, parameter in itertools.product(["float16", "bfloat16"], [0.1, 1 / 3, 1e-3]):
        with naming(dtype, parameter):
            params = {name: parameter}
            case = make_case(loss, dtype=dtype, reduction="none", params=params)

            (result,) = put(case, find_implementation("custom"), checks=CHECKS)
            (wrong,) = judge(case, cut_off, checks=CHECKS)

            assert (result.status, result.reason) == (PASS, "")
            assert wrong.status == FAIL


@pytest.mark.parametrize("changes", [{"reduction": "mean"}, {"dtype": "float32"}])
def test_rounding_does_not_apply_to_sums_or_wider_dtypes(make_case, changes):
    case = make_case(**{"dtype": "bfloat16", "reduction": "none"} | changes)

    assert judge(case, reference, checks=CHECKS) == []
