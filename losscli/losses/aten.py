"""PyTorch's own functions, for references and baselines, below ``torch.nn.functional``.

A program may replace those. Copies made at import would not help: under a torch function mode, each
function looks up its own name again.
"""

from collections.abc import Callable
from typing import Any

from losscli.machine.pytorch import Tensor, torch

from .formulas import REDUCTIONS


def softplus(input: Tensor) -> Tensor:
    """``log(1 + exp(input))``, or ``input`` from 20 on."""
    return torch._C._nn.softplus(input)


def logsigmoid(input: Tensor) -> Tensor:
    """``-log(1 + exp(-input))``."""
    return torch._C._nn.log_sigmoid(input)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``."""
    return torch._C._nn.linear(input, weight, bias)


def _loss(find: Callable[[], Any], *switches: str) -> Callable[..., Tensor]:
    """Return a loss by name of the reduction; PyTorch takes ``switches`` as bool only."""

    def loss(*operands: Tensor | None, reduction: str, **settings: Any) -> Tensor:
        for name in switches:
            settings[name] = bool(settings[name])
        found: Tensor = find()(*operands, reduction=REDUCTIONS.index(reduction), **settings)
        return found

    return loss


l1_loss = _loss(lambda: torch._C._nn.l1_loss)
mse_loss = _loss(lambda: torch._C._nn.mse_loss)
huber_loss = _loss(lambda: torch._C._nn.huber_loss)
binary_cross_entropy = _loss(lambda: torch._C._nn.binary_cross_entropy)
binary_cross_entropy_with_logits = _loss(lambda: torch.binary_cross_entropy_with_logits)
kl_div = _loss(lambda: torch.kl_div, "log_target")
poisson_nll_loss = _loss(lambda: torch.poisson_nll_loss, "log_input", "full")
soft_margin_loss = _loss(lambda: torch._C._nn.soft_margin_loss)
nll_loss = _loss(lambda: torch._C._nn.nll_loss_nd)
cross_entropy = _loss(lambda: torch._C._nn.cross_entropy_loss)
multi_margin_loss = _loss(lambda: torch._C._nn.multi_margin_loss)
cosine_embedding_loss = _loss(lambda: torch.cosine_embedding_loss)
triplet_margin_loss = _loss(lambda: torch.triplet_margin_loss)
_smooth_l1_loss = _loss(lambda: torch._C._nn.smooth_l1_loss)


def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str, beta: float) -> Tensor:
    """Smooth L1; ``beta=0`` is the absolute error."""
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    return _smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def linear_cross_entropy(*operands: Tensor, **settings: Any) -> Tensor:
    """Call PyTorch's function, which has no operator below; RuntimeError if it was replaced."""
    own: Any = torch.nn.functional.linear_cross_entropy
    if own.__module__ != "torch.nn.functional":
        raise RuntimeError(
            "PyTorch's own torch.nn.functional.linear_cross_entropy is asked for, but "
            f"{own.__module__}.{own.__qualname__} has replaced it; put PyTorch's back"
        )
    found: Tensor = own(*operands, **settings)
    return found
