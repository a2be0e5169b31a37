"""The check of broadcasts around the sizes of tiles and vectors."""

from __future__ import annotations

import pytest

from losscli.runs.records import FAIL, WARN
from tests.verify.judging import judge, reference

CHECKS = ("broadcasts",)


def wrong_where(is_wrong):
    def wrong(case, input, target):
        loss = reference(case, input, target)
        return 2 * loss if is_wrong(tuple(input.shape), tuple(target.shape)) else loss

    return wrong


def a_row_beyond_a_tile(input, target):
    return len(target) == 1 and 1024 < target[0] < 2048


def a_row_of_one_vector(input, target):
    return target == (4,)


def a_repeat_in_two_dimensions(input, target):
    return target == (40, 1, 1)


def a_repeated_input(input, target):
    return input == (5, 1)


@pytest.mark.parametrize(
    ("is_wrong", "named"),
    [
        (a_row_beyond_a_tile, "with (5, 1025) with (1025,); (5, 1500) with (1500,)"),
        (a_row_of_one_vector, "(100, 4) with (4,), "),
        (a_repeat_in_two_dimensions, "(40, 5, 7) with (40, 1, 1), "),
        (a_repeated_input, "(5, 1) with (40, 5, 7), "),
    ],
)
def test_mistake_in_a_broadcast_fails(make_case, is_wrong, named):
    (result,) = judge(make_case("mse"), wrong_where(is_wrong), checks=CHECKS)

    assert result.status == FAIL
    assert named in result.reason


def test_pytorchs_float32_sums_pass(make_case):
    (result,) = judge(make_case(), lambda *given: reference(*given), checks=CHECKS)

    assert result.status == WARN
    assert "a careful sum stays within" in result.reason
