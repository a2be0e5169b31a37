"""losscli's kernels pass each check of verify that applies: what a check asks is not tested again.

On a GPU the losses of elements do so in ``tests/verify/test_verify_gpu.py``.
"""

import itertools
import re

import pytest

from losscli.implementations import find_implementation
from losscli.losses import REDUCTIONS, ROW_FORMS, find_loss
from losscli.runs.records import PASS
from losscli.verify.checks import CHECKS
from tests.handmade import case_of
from tests.machinery import ROW_MACHINERY
from tests.parameters import SLOW, naming, square
from tests.verify.judging import put

from .losses import DTYPES, MACHINERY

SHAPE = (37, 101)
PLAIN = re.compile("^(weighted|masked)_|_with_probabilities$")
CHECKED = (*ROW_MACHINERY, "topk_kl_divergence")
OF_ROWS = [name for name in ROW_FORMS if PLAIN.sub("", name) in CHECKED]
OTHERS_OF_ROWS = [name for name in ROW_FORMS if name not in ROW_MACHINERY]


def assert_passes(case, checks=CHECKS):
    results = put(case, find_implementation("custom"), checks=checks)
    assert results
    assert [(r.check, r.status, r.reason) for r in results if r.status != PASS] == []


def row_case(loss, number, device, **changes):
    """Return a case of one of the reductions that a loss has, in turn."""
    reductions = find_loss(loss).reductions
    settings = {"reduction": reductions[number % len(reductions)], "distribution": "normal"}
    return case_of(loss, SHAPE, device=device, **settings, **changes)


@pytest.mark.parametrize(("loss", "reduction", "dtype"), square(MACHINERY, REDUCTIONS, DTYPES))
def test_losses_of_elements_pass_every_check(loss, reduction, dtype):
    settings = {"reduction": reduction, "dtype": dtype, "distribution": "normal"}
    forms = (loss, f"weighted_{loss}")
    assert_passes(case_of(forms[[*DTYPES].index(dtype) % 2], SHAPE, **settings))


@pytest.mark.parametrize(
    ("loss", "dtype"),
    [
        *square(ROW_MACHINERY, DTYPES),
        *(
            pytest.param(loss, dtype, marks=SLOW)
            for loss, dtype in itertools.product(OF_ROWS, DTYPES)
            if loss not in ROW_MACHINERY
        ),
    ],
)
def test_losses_over_rows_pass_every_check(loss, dtype, device):
    number = OF_ROWS.index(loss) + [*DTYPES].index(dtype)
    assert_passes(row_case(loss, number, device, dtype=dtype))


@pytest.mark.parametrize("other", [0, pytest.param(1, marks=SLOW)])
def test_every_other_loss_over_rows_takes_any_values(other, device):
    dtypes = itertools.cycle(("float32", "bfloat16", "bfloat16", "float32"))
    for number, (loss, dtype) in enumerate(zip(OTHERS_OF_ROWS, dtypes, strict=False)):
        params = {each.name: each.off_default for each in find_loss(loss).parameters}
        given = ({}, params)[(number + other) % 2]
        with naming(loss, given):
            case = row_case(loss, number, device, dtype=dtype, params=given)
            assert_passes(
                case, ("value", "extreme_values", "row_relations", "out_of_range_classes")
            )
