"""Tensors of more than 2^31 elements."""

from __future__ import annotations

import pytest
import torch

from losscli.machine.memory import free_bytes

from .losses import MACHINERY
from .test_values import assert_meets_oracle

pytestmark = pytest.mark.gpu

ROWS, COLUMNS = 2**16 + 3, 2**15 + 8


@pytest.fixture(autouse=True)
def _memory() -> None:
    needed = 8 * 2 * ROWS * COLUMNS
    if free_bytes("cuda:0") < needed:
        pytest.skip(f"needs {needed} bytes of GPU memory")


@pytest.mark.parametrize("layout", ["same shape", "one row", "one column"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_results_are_right_beyond_2_to_the_31_elements(loss: str, layout: str) -> None:
    shape = {"same shape": (ROWS, COLUMNS), "one row": (COLUMNS,), "one column": (ROWS, 1)}[layout]
    generator = torch.Generator("cuda").manual_seed(0)

    def filled(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.bfloat16, device="cuda")

    assert_meets_oracle(loss, "mean", filled((ROWS, COLUMNS)), filled(shape))
