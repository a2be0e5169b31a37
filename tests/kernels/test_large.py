import pytest
import torch

from losscli.machine.memory import free_bytes

from .losses import DTYPES, MACHINERY, custom
from .test_values import assert_meets_oracle

pytestmark = pytest.mark.gpu

ROWS, COLUMNS = 2**16 + 3, 2**15 + 8


@pytest.fixture(autouse=True)
def _memory():
    needed = 8 * 2 * ROWS * COLUMNS
    if free_bytes("cuda:0") < needed:
        pytest.skip(f"needs {needed} bytes of GPU memory")


@pytest.mark.parametrize("layout", ["same shape", "one row", "one column"])
@pytest.mark.parametrize("loss", MACHINERY)
def test_results_are_right_beyond_2_to_the_31_elements(loss, layout):
    shape = {"same shape": (ROWS, COLUMNS), "one row": (COLUMNS,), "one column": (ROWS, 1)}[layout]
    generator = torch.Generator("cuda").manual_seed(0)

    def filled(shape):
        return torch.randn(shape, generator=generator, dtype=torch.bfloat16, device="cuda")

    assert_meets_oracle(loss, "mean", filled((ROWS, COLUMNS)), filled(shape))


COSTLY = {"gaussian_nll": 3, "kl_div": 2, "log_cosh": 2, "weighted_kl_div": 3}
"""Losses of logarithms and divisions, with their number of operands, and one with a weight."""
LARGE_BYTES = 2**29


@pytest.mark.parametrize("reach", ["prediction", "every operand"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", COSTLY)
def test_a_large_tensor_of_a_costly_loss_has_the_gradients_of_its_parts(loss, dtype, reach):
    size = LARGE_BYTES // DTYPES[dtype].itemsize + 3 * 8192 + 5
    generator = torch.Generator("cuda").manual_seed(0)
    operands = [
        torch.empty(size, dtype=DTYPES[dtype], device="cuda").uniform_(0.1, 1, generator=generator)
        for _ in range(COSTLY[loss])
    ]
    inner = custom(loss.removeprefix("weighted_"), "sum")
    function = inner
    if loss.startswith("weighted_"):

        def function(*given):
            return inner(*given[:-1], weight=given[-1])

    leaves = [
        each.requires_grad_(reach == "every operand" or not k) for k, each in enumerate(operands)
    ]
    wanted = [each for each in leaves if each.requires_grad]
    total = function(*leaves)
    gradients = torch.autograd.grad(total, wanted)
    summed = 0.0
    step = size // 5 // 1024 * 1024
    for start in range(0, size, step):
        part = [
            each.detach()[start : start + step].requires_grad_(each.requires_grad)
            for each in leaves
        ]
        loss_of_part = function(*part)
        found = torch.autograd.grad(loss_of_part, [each for each in part if each.requires_grad])
        for whole, piece in zip(gradients, found, strict=True):
            assert torch.equal(whole[start : start + step], piece)
        if dtype in ("float32", "float64"):
            summed += loss_of_part.item()
    if summed:
        assert total.item() == pytest.approx(summed, rel=1e-6)
