"""PyTorch's own functions, below ``torch.nn.functional``, which a program may replace.

References and baselines call these. Copies made at import would not help: under a torch function
mode, each function looks up its own name again.
"""

from __future__ import annotations

from typing import Any

from losscli.machine.pytorch import Tensor, torch

from .formulas import REDUCTIONS


def _number(reduction: str) -> Any:
    return REDUCTIONS.index(reduction)


def softplus(input: Tensor) -> Tensor:
    """``log(1 + exp(input))``, or ``input`` from 20 on."""
    return torch._C._nn.softplus(input)


def logsigmoid(input: Tensor) -> Tensor:
    """``-log(1 + exp(-input))``."""
    return torch._C._nn.log_sigmoid(input)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``."""
    return torch._C._nn.linear(input, weight, bias)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """Absolute error of operands of one shape."""
    return torch._C._nn.l1_loss(input, target, _number(reduction))


def mse_loss(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """Squared error of operands of one shape."""
    return torch._C._nn.mse_loss(input, target, _number(reduction))


def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str, beta: float) -> Tensor:
    """Smooth L1 of operands of one shape; ``beta=0`` is the absolute error."""
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return torch._C._nn.smooth_l1_loss(input, target, _number(reduction), beta)


def huber_loss(input: Tensor, target: Tensor, *, reduction: str, delta: float) -> Tensor:
    """Huber loss of operands of one shape."""
    return torch._C._nn.huber_loss(input, target, _number(reduction), delta)


def binary_cross_entropy(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """Binary cross entropy of probabilities."""
    return torch._C._nn.binary_cross_entropy(input, target, None, _number(reduction))


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, pos_weight: Tensor | None = None, *, reduction: str
) -> Tensor:
    """Binary cross entropy of logits."""
    return torch.binary_cross_entropy_with_logits(
        input, target, None, pos_weight, _number(reduction)
    )


def kl_div(input: Tensor, target: Tensor, *, reduction: str, log_target: bool) -> Tensor:
    """Kullback-Leibler divergence of each element."""
    return torch.kl_div(input, target, _number(reduction), log_target=log_target)


def poisson_nll_loss(
    input: Tensor, target: Tensor, *, reduction: str, log_input: bool, full: bool, eps: float
) -> Tensor:
    """Negative log-likelihood of a Poisson distribution."""
    return torch.poisson_nll_loss(input, target, log_input, full, eps, _number(reduction))


def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """Logistic loss."""
    return torch._C._nn.soft_margin_loss(input, target, _number(reduction))


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, *, reduction: str, ignore_index: int
) -> Tensor:
    """Negative log-likelihood of class indices."""
    return torch._C._nn.nll_loss_nd(input, target, weight, _number(reduction), ignore_index)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of logits."""
    return torch._C._nn.cross_entropy_loss(
        input, target, weight, _number(reduction), ignore_index, label_smoothing
    )


def multi_margin_loss(
    input: Tensor, target: Tensor, *, reduction: str, p: float, margin: float
) -> Tensor:
    """Multi-class margin loss."""
    return torch._C._nn.multi_margin_loss(input, target, p, margin, None, _number(reduction))


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, *, reduction: str, margin: float
) -> Tensor:
    """Cosine embedding loss of rows."""
    return torch.cosine_embedding_loss(input1, input2, target, margin, _number(reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    reduction: str,
    margin: float,
    p: float,
    eps: float,
    swap: bool,
) -> Tensor:
    """Triplet margin loss of rows."""
    norm = (margin, p, eps, swap)
    return torch.triplet_margin_loss(anchor, positive, negative, *norm, _number(reduction))


def linear_cross_entropy(*operands: Tensor, **settings: Any) -> Tensor:
    """Call PyTorch's function, which has no operator below it; RuntimeError if it was replaced."""
    own: Any = torch.nn.functional.linear_cross_entropy
    if own.__module__ != "torch.nn.functional":
        raise RuntimeError(
            "PyTorch's own torch.nn.functional.linear_cross_entropy is asked for, but "
            f"{own.__module__}.{own.__qualname__} has replaced it; put PyTorch's back"
        )
    found: Tensor = own(*operands, **settings)
    return found
