import math
from functools import partial
from typing import Any

import pytest
import torch

from losscli.cases.axes import DTYPES
from losscli.losses import REDUCTIONS
from losscli.runs.records import FAIL
from losscli.truth.distances import index_of
from losscli.truth.problem import Problem
from losscli.verify.checks.coverage import (
    MOST_TILES,
    TILE,
    at_least_loss,
    find_change,
    probed_elements,
)
from losscli.verify.selftest.surgery import graft
from tests.machinery import MACHINERY
from tests.parameters import naming
from tests.verify.judging import reference, result_of

SHAPE = (173, 101)


put = partial(result_of, "coverage")


def drops_the_last_element(case, *operands):
    flat = reference(case, *operands, reduction="none").flatten()
    return flat[:-1].sum() / flat.numel()


def drops_the_end_of_each_row(case, *operands):
    elements = reference(case, *operands, reduction="none")
    return elements[:, :-1].sum() / elements.numel()


def reads_the_first_tile_again(case, *operands):
    """The mistake of an index that wraps around."""
    size = 8192
    flat = reference(case, *operands, reduction="none").flatten()
    return flat[torch.arange(flat.numel()) % size].mean()


WRONG: list[tuple[Any, str]] = [
    ("one percent", "loss: expected "),
    (drops_the_last_element, "[172, 100]"),
    (drops_the_end_of_each_row, ", 100]"),
    ("constant", "loss: expected "),
    (reads_the_first_tile_again, "expected "),
]


@pytest.mark.parametrize("loss", MACHINERY)
@pytest.mark.parametrize(
    ("wrong", "named"), WRONG, ids=[w if isinstance(w, str) else w.__name__ for w, _ in WRONG]
)
def test_elements_that_are_not_read_fail_and_are_named(make_case, wrong, named, loss):
    result = put(make_case(loss, shape=SHAPE), wrong)
    assert result.status == FAIL
    assert named in result.reason
    assert ", got " in result.reason


def test_dropped_element_is_found_by_bisection_and_named(make_case):
    result = put(make_case("mse", shape=SHAPE), drops_the_last_element)
    gradient = "input gradient, after "
    assert result.reason.startswith((gradient, "loss: expected "))
    assert "[172, 100]" in result.reason
    assert "[0, 0]" not in result.reason


def test_a_loss_or_a_gradient_alone_that_is_wrong_is_failed(make_case):
    def value_alone(case, input, target):
        right = reference(case, input, target)
        return graft(drops_the_last_element(case, input, target).detach(), right)

    def shifted_gradient(case, input, target):
        shifted = reference(case, input.roll(1), target)
        return graft(reference(case, input, target).detach(), shifted)

    result = put(make_case("mse", shape=SHAPE), value_alone)
    assert result.status == FAIL
    assert result.reason.startswith("loss: expected ")
    assert "when input [172, 100] alone becomes " in result.reason
    assert result.reason.endswith("wrong at least for input [172, 100]")
    result = put(make_case("mse", shape=SHAPE), shifted_gradient)
    assert result.status == FAIL
    assert "gradient, after " in result.reason


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradient_that_changes_everywhere_for_one_element_fails(make_case, reduction):
    """The result of a normalisation: each gradient depends on all elements."""

    def scaled(case, input, target):
        return reference(case, input + 1e-3 * input.detach().mean(), target)

    result = put(make_case("mse", shape=SHAPE, reduction=reduction), scaled)
    assert result.status == FAIL
    assert "expected no change at [0, 1], it changed from " in result.reason


@pytest.mark.parametrize("loss", MACHINERY)
def test_group_is_small_enough_to_show_one_missed_element(make_case, loss):
    for dtype in DTYPES:
        with naming(dtype):
            problem = at_least_loss(Problem.of(make_case(loss, shape=SHAPE, dtype=dtype)))
            for name in ("input", "target"):
                change = find_change(problem, name)
                assert change.group >= 1
                in_all, whole = change.expect(0, change.group)
                assert abs(in_all) < torch.finfo(getattr(torch, dtype)).max
                assert min(abs(loss) for loss, _ in change.adds) >= 2 * change.tolerance * whole


@pytest.mark.parametrize("loss", MACHINERY)
def test_case_of_which_no_change_shows_passes(make_case, loss):
    problem = at_least_loss(Problem.of(make_case(loss, shape=(8, 24), params={})))
    # That of a count of 3 for a logarithm of 1/2: no loss of few bits is nearer to 0.
    due = {"poisson_nll": math.exp(0.5) - 1.5}.get(loss, 0.0)
    assert subject_loss(problem) == pytest.approx(due)


def subject_loss(problem):
    return float(reference(problem.case, *problem.operands.values()))


def test_each_tile_both_ends_the_tail_and_ends_of_rows_are_probed():
    for shape in [(1,), (5,), (173, 1001), (3, 5, 7), (10**6,)]:
        with naming(shape):
            count = torch.Size(shape).numel()
            found = probed_elements(shape, 4)
            assert found == sorted(set(found))
            assert {0, count - 1} <= set(found)
            assert set(range(max(count - 17, 0), count)) <= set(found)
            assert shape[-1] - 1 in found
            if count <= MOST_TILES * TILE:
                assert {place // TILE for place in found} == set(range(-(-count // TILE)))


def test_a_large_tensor_is_probed_at_some_tiles_and_where_32_bits_end():
    found = probed_elements((70_000, 65_536), 2)
    assert len(found) < 2 * MOST_TILES
    for edge in (2**30, 2**31, 2**32):  # 2^30: 2 GiB of 2 bytes
        assert {edge - 1, edge, edge + 1} <= set(found)


def test_place_has_an_index():
    assert index_of(2 * 1001 + 7, (173, 1001)) == (2, 7)
    assert index_of(0, ()) == ()
