"""token_log_probs equals log_softmax and gather in float64."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from losscli import functional
from losscli.extension import row_functors
from losscli.losses.token_log_probs import reference, token_log_probs

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    # The kernels are what is tested, and not PyTorch's operators in their place.
    monkeypatch.setattr(row_functors, "PROVEN", ["cpu", "cuda"])
    torch.manual_seed(0)
    return request.param


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("classes", [1, 3, 7, 31, 33, 1000, 4097, 70001])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_values_and_gradients_equal_the_formula(dtype, classes, entropy, device):
    logits = (3 * torch.randn(2, 3, classes, device=device)).to(dtype)
    if classes > 3:
        logits[..., 1] = float("-inf")
    logits.requires_grad_()
    tokens = torch.randint(2 if classes > 3 else 1, (2, 3), device=device)
    tokens = torch.where(tokens == 1, classes - 1, 0)
    exact = logits.detach().double().requires_grad_()
    found = token_log_probs(logits, tokens, temperature=1.3, entropy=entropy)
    got = found if isinstance(found, tuple) else (found,)
    assert len(got) == 1 + entropy
    due = reference(exact, tokens, 1.3, entropy)[: len(got)]
    incoming = [torch.randn(2, 3, device=device) for _ in got]
    eps = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    for ours, theirs in zip(got, due, strict=True):
        assert ours.dtype == torch.promote_types(dtype, torch.float32)
        assert_close(ours.double(), theirs, rtol=64 * eps, atol=64 * eps)
    gradient = torch.autograd.grad(got, logits, [each.to(got[0].dtype) for each in incoming])[0]
    expected = torch.autograd.grad(due, exact, [each.double() for each in incoming])[0]
    relative = 4 * torch.finfo(dtype).eps if dtype.itemsize == 2 else 512 * eps
    absolute = relative * expected.abs().max().item() + 1e-7 * (dtype.itemsize < 8)
    assert_close(gradient.double(), expected, rtol=relative, atol=absolute)


def test_function_is_exported():
    assert functional.token_log_probs is token_log_probs
    assert "token_log_probs" in functional.__all__


def test_token_that_is_no_class_gives_nan(device):
    logits = torch.randn(3, 5, device=device, requires_grad=True)
    found = token_log_probs(logits, torch.tensor([0, 5, -1], device=device))
    assert found.isnan().tolist() == [False, True, True]
    gradient = torch.autograd.grad(found.sum(), logits)[0]
    assert gradient.isnan().all(1).tolist() == [False, True, True]


def test_derivatives_and_transforms(device):
    logits = torch.randn(3, 5, dtype=torch.float64, device=device, requires_grad=True)
    tokens = torch.tensor([0, 4, 2], device=device)

    def both(x):
        return token_log_probs(x, tokens, entropy=True)

    assert torch.autograd.gradcheck(both, logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(both, logits)
    plain = logits.detach()
    rows = torch.func.vmap(lambda x, t: token_log_probs(x, t))(plain, tokens)
    assert_close(rows, token_log_probs(plain, tokens))


@pytest.mark.parametrize("entropy", [False, True])
def test_operators_pass_opcheck(entropy, device):
    logits = torch.randn(3, 5, device=device, requires_grad=True)
    tokens = torch.tensor([0, 4, 2], device=device)
    operators = torch.ops.losscli
    torch.library.opcheck(operators.token_log_probs.default, (logits, tokens, 1.3, entropy))
    rows = torch.randn(3, device=device)
    given = (rows, rows if entropy else rows.new_empty(0), logits.detach(), tokens, 1.3, entropy)
    torch.library.opcheck(operators.token_log_probs_backward.default, given)


def test_compiled_step_equals_the_eager_one(device):
    torch._dynamo.reset()
    logits = torch.randn(3, 5, device=device, requires_grad=True)
    tokens = torch.tensor([0, 4, 2], device=device)

    def step(x):
        found, entropy = token_log_probs(2 * x, tokens, entropy=True)
        return (found + 0.1 * entropy).sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    due = torch.autograd.grad(step(logits), logits)[0]
    assert_close(torch.autograd.grad(compiled(logits), logits)[0], due)
