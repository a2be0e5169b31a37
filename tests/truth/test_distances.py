import math
from collections import Counter

import pytest
import torch

from losscli.cases.axes import DTYPES
from losscli.truth.distances import Truth, compare, ulp

DIGITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


def measure(result, truth, dtype=torch.float32, magnitude=None):
    value = torch.tensor(truth, dtype=torch.float64)
    scale = None if magnitude is None else torch.tensor(magnitude, dtype=torch.float64)
    block = tuple(slice(0, extent) for extent in value.shape)
    return compare(torch.tensor(result, dtype=dtype), [Truth(block, value, scale)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_ulp_is_the_spacing_of_the_dtype(dtype):
    digits, limits = DIGITS[dtype], torch.finfo(getattr(torch, dtype))
    scale = torch.tensor([1.0, 1.5, 2.0, 0.75, 0.0, limits.tiny, limits.tiny / 8])
    smallest = limits.tiny * limits.eps
    expected = [2.0**-digits, 2.0**-digits, 2.0 ** (1 - digits), 2.0 ** (-1 - digits)]
    assert ulp(scale.double(), getattr(torch, dtype)).tolist()[:4] == expected
    assert ulp(scale.double(), getattr(torch, dtype)).tolist()[4:6] == [smallest, smallest]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_correctly_rounded_result_is_off_by_half_an_ulp_at_most(dtype):
    truth = torch.randn(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth *= torch.logspace(-12, 3, 2000, dtype=torch.float64)
    errors = compare(truth.to(getattr(torch, dtype)), [Truth((slice(0, 2000),), truth)])
    assert errors.ulp <= 0.5
    assert errors.ulp > 0.4 or dtype == "float64"
    assert errors.mismatches == Counter()


def test_the_next_number_is_one_ulp_away_and_the_worst_is_located():
    one_up = 1.0 + 2.0**-23
    errors = measure([[1.0, 1.0, 1.0], [1.0, 1.0, one_up]], [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    assert (errors.ulp, errors.absolute, errors.index) == (1.0, 2.0**-23, (1, 2))
    assert (errors.expected, errors.got) == (1.0, one_up)


def test_over_blocks_errors_add_up_and_an_index_counts_from_the_start_of_the_tensor():
    truth = torch.zeros(4, 3, dtype=torch.float64)
    result = torch.zeros(4, 3)
    result[3, 1] = 1.0
    cuts = [(slice(0, 2), slice(0, 3)), (slice(2, 4), slice(0, 3))]
    errors = compare(result, [Truth(cut, truth[cut]) for cut in cuts])
    assert errors.index == (3, 1)
    truth = torch.tensor([3.0, 4.0], dtype=torch.float64)
    result = torch.tensor([3.0, 4.5])
    halves = [slice(0, 1), slice(1, 2)]
    errors = compare(result, [Truth((half,), truth[half]) for half in halves])
    assert errors.relative == 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e-8, 1e-30])
def test_zero_is_far_from_any_nonzero_gradient(dtype, size):
    errors = measure([0.0] * 3, [size, -size, size / 3], dtype)
    assert errors.ulp >= 0.5 / torch.finfo(dtype).eps
    assert errors.relative == 1.0
    assert errors.mismatches["zero"] == 3


def test_value_below_the_float16_range_may_become_zero():
    """Below half the smallest subnormal zero is the correctly rounded result; above, it is not."""
    smallest = 2.0**-24
    assert measure([0.0], [0.4 * smallest], torch.float16).ulp == pytest.approx(0.4)
    assert measure([0.0], [16 * smallest], torch.float16).ulp == 16.0


def test_cancelled_terms_count_by_their_magnitude():
    wrong_by = 3e-8
    assert measure([wrong_by], [0.0]).ulp > 1e30
    assert measure([wrong_by], [0.0], magnitude=[1.0]).ulp == pytest.approx(
        wrong_by * 2**23, rel=1e-6
    )


@pytest.mark.parametrize(
    ("result", "truth", "dtype"),
    [
        (math.nan, math.nan, torch.float32),
        (math.inf, math.inf, torch.float32),
        (-math.inf, -math.inf, torch.float32),
        (math.inf, 70000.0, torch.float16),  # beyond the range of float16
        (0.0, -0.0, torch.float32),
    ],
)
def test_special_values_agree(result, truth, dtype):
    errors = measure([result], [truth], dtype)
    assert (errors.ulp, errors.absolute, errors.relative) == (0.0, 0.0, 0.0)
    assert errors.mismatches == Counter()


@pytest.mark.parametrize(
    ("result", "truth", "kind"),
    [
        (0.0, math.nan, {"nan": 1, "zero": 1}),
        (math.nan, 1.0, {"nan": 1}),
        (1.0, math.inf, {"inf": 1}),
        (math.inf, 1.0, {"inf": 1}),
        (math.inf, -math.inf, {"sign": 1}),
        (math.nan, math.inf, {"nan": 1, "inf": 1}),
    ],
)
def test_special_values_that_disagree_are_infinitely_wrong(result, truth, kind):
    errors = measure([1.0, result], [1.0, truth])
    assert errors.ulp == math.inf
    assert errors.index == (1,)
    assert errors.mismatches == Counter(kind)


def test_a_wrong_sign_is_counted_and_an_empty_tensor_and_a_scalar_have_no_index():
    assert measure([1.0, -1.0], [1.0, 1.0]).mismatches == Counter(sign=1)
    errors = measure([], [])
    assert (errors.ulp, errors.relative, errors.index) == (0.0, 0.0, ())
    assert measure(2.0, 1.0).index == ()
