"""Log-probabilities of tokens, and the entropy of each position, as in reinforcement learning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import operators
from .module import check_parameters
from .row_functors import TEMPERATURE

if TYPE_CHECKING:
    from torch import Tensor


def token_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0, entropy: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the log-probability of each token under softmax(logits / T).

    Args:
        logits: Of shape (..., C).
        tokens: Class numbers in int64, of shape (...). For one that is no class, the result and the
            gradient of its row are NaN.
        temperature: Divides the logits.
        entropy: Whether to return the entropy of each row as well, differentiable too.

    Returns:
        The log-probabilities, of shape (...), in float32 for 16-bit logits, else in the dtype of
        the logits; with ``entropy`` those and the entropies.
    """
    check_parameters("token_log_probs", (TEMPERATURE,), {"temperature": temperature})
    found: tuple[Tensor, Tensor] = operators.token_log_probs(logits, tokens, temperature, entropy)
    return found if entropy else found[0]


def reference(
    logits: Tensor, tokens: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and entropies composed of PyTorch's operators.

    Without ``entropy`` the second has no elements.
    """
    import torch

    wide = torch.promote_types(logits.dtype, torch.float32)
    log_p = torch.log_softmax(logits.to(wide) / temperature, -1)
    found = log_p.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    if not entropy:
        return found, found.new_empty(0)
    p = log_p.exp()
    return found, -(p * torch.where(p > 0, log_p, 0.0)).sum(-1)


token_log_probs.__module__ = "losscli.functional"
