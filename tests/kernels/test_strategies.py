"""The ways to finish a sum, which are implementations, change at most its rounding."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from losscli.implementations import IMPLEMENTATIONS, STRATEGIES, find_implementation
from losscli.operators import loading
from losscli.runs.records import PASS
from tests import handmade
from tests.parameters import few, naming, square
from tests.verify.judging import put

from .losses import DTYPES, MACHINERY, PARAMETERS, case_of, custom, make, reference

REPRODUCIBLE = tuple(name for name in STRATEGIES if name != "atomic")
SIZES = {
    1: "one element",
    1025: "one tile and one element",
    65537: "one chunk and one element",
    1200007: "more chunks than are kept without an allocation, and an odd tail",
}
CHUNK = 65536


@pytest.fixture(scope="module", autouse=True)
def _strategies():
    """Build the kernels once, if they are not in the cache."""
    for loss in MACHINERY:
        loading.load_loss(loss, "cpu", strategies=True)


def strategic(loss: str, reduction: str, strategy: str) -> Callable[[Tensor, Tensor], Tensor]:
    settings = PARAMETERS[loss].values()

    def function(input: Tensor, target: Tensor) -> Tensor:
        op = getattr(torch.ops.losscli_bench, loss).default
        result: Tensor = op(input, target, reduction, *settings, strategy)
        return result

    return function


@pytest.mark.parametrize(("loss", "reduction", "dtype"), square(MACHINERY, ("mean", "sum"), DTYPES))
def test_value_of_each_strategy_matches_float64(loss, reduction, dtype):
    # All terms have one sign, so that the sum is as good as its terms, and rounded at the end. A
    # term of the formulas is rounded up to four times, sixteen of them are added in a lane.
    compute = 2**-24 if dtype != "float64" else 2**-53
    close = torch.finfo(DTYPES[dtype]).eps / 2 + 32 * compute
    for size, strategy in itertools.product(SIZES, STRATEGIES):
        values = make(DTYPES[dtype], "cpu")
        input, target = values((size,)), values((size,))
        expected = reference(loss, reduction)(input.double(), target.double())
        result = strategic(loss, reduction, strategy)(input, target)
        with naming(SIZES[size], strategy):
            assert result.dtype == DTYPES[dtype]
            assert result.shape == ()
            if expected.abs() > torch.finfo(result.dtype).max:
                assert math.isinf(result)
            else:
                torch.testing.assert_close(result.double(), expected, rtol=close, atol=0)


def test_the_mean_of_nothing_is_nan_and_its_sum_zero():
    nothing = torch.empty(0)
    for loss, strategy in itertools.product(MACHINERY, STRATEGIES):
        with naming(loss, strategy):
            assert strategic(loss, "mean", strategy)(nothing, nothing).isnan()
            assert strategic(loss, "sum", strategy)(nothing, nothing) == 0


@pytest.fixture(scope="module")
def many_chunks():
    """Two levels of a tree with groups of 512."""
    chunks = 1025
    input = torch.zeros(chunks * CHUNK)
    input[::CHUNK] = torch.arange(chunks) % 7 - 3.0
    input[-1] = 5.0
    return input


@pytest.mark.parametrize("loss", few(MACHINERY, ("mse",)))
def test_every_chunk_counts_once(loss, many_chunks):
    target = torch.ones(1)
    expected = custom(loss, "none")(many_chunks, target).sum(dtype=torch.float64)
    for strategy in STRATEGIES:
        result = strategic(loss, "sum", strategy)(many_chunks, target)
        # Sixteen terms are added in a lane; a chunk more or less is a thousandth.
        with naming(strategy):
            torch.testing.assert_close(result.double(), expected, rtol=17 * 2**-24, atol=0)


@pytest.mark.parametrize(("strategy", "loss", "dtype"), square(REPRODUCIBLE, MACHINERY, DTYPES))
def test_runs_and_threads_do_not_change_the_bits(strategy, loss, dtype):
    values = make(DTYPES[dtype], "cpu")
    input, target = values((1200007,)), values((1200007,))
    function = strategic(loss, "sum" if dtype == "float64" else "mean", strategy)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 2, 1):
            torch.set_num_threads(count)
            results.append(function(input, target))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("loss", MACHINERY)
def test_an_unknown_strategy_is_refused(loss):
    with pytest.raises(ValueError, match=r"strategy must be 'atomic', .*'quick'"):
        strategic(loss, "mean", "quick")(torch.ones(3), torch.ones(3))


@pytest.mark.parametrize("loss", MACHINERY)
def test_atomic_is_refused_where_only_deterministic_algorithms_are_allowed(loss):
    input = torch.ones(8, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="strategy 'atomic' of losscli does not have a det"):
            strategic(loss, "mean", "atomic")(input, torch.zeros(8))
        for strategy in REPRODUCIBLE:
            strategic(loss, "mean", strategy)(input, torch.zeros(8)).backward()
        custom(loss)(input, torch.zeros(8)).backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_each_strategy_is_an_implementation():
    named = [name for name in IMPLEMENTATIONS if name.startswith("custom:")]
    assert named == [f"custom:{strategy}" for strategy in STRATEGIES]


@pytest.mark.parametrize("loss", MACHINERY)
def test_without_a_reduction_there_is_nothing_to_finish(loss):
    case = case_of(loss, "none", torch.ones(2, 2), torch.ones(2, 2))
    for strategy in STRATEGIES:
        reason = find_implementation(f"custom:{strategy}").unavailable(case)
        assert reason.text == "without a reduction there is no sum to finish"


@pytest.mark.parametrize(("strategy", "loss", "dtype"), square(STRATEGIES, MACHINERY, DTYPES))
def test_a_strategy_has_the_values_and_gradients_of_the_loss(strategy, loss, dtype, device):
    for reduction in ("mean", "sum"):
        settings = {"reduction": reduction, "dtype": dtype, "device": device}
        case = handmade.case_of(loss, (300, 1001), distribution="normal", **settings)
        found = put(case, find_implementation(f"custom:{strategy}"), checks=("value", "gradients"))
        with naming(reduction):
            assert [(r.check, r.status, r.reason) for r in found if r.status != PASS] == []
