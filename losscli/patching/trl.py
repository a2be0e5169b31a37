"""The log-probabilities and entropies of TRL's trainers."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from losscli.functional import token_log_probs

from .functional import falling_through

MODULE = "trl"
OLDEST, NEWEST = (0, 24), (1, 16)


def table() -> dict[str, tuple[str, Any]]:
    """Return old name -> new name, and what makes the replacement."""
    from trl.trainer import utils

    own = (selective_log_softmax, entropy_from_logits, selective_log_softmax_and_entropy)
    return {
        f"trl.trainer.utils.{each.__name__}": (
            "losscli.functional.token_log_probs",
            partial(falling_through, each),
        )
        for each in own
        if hasattr(utils, each.__name__)
    }


def selective_log_softmax(
    logits: Tensor, index: Tensor, temperature: float = 1.0, row_mask: Tensor | None = None
) -> Tensor:
    """Return each row's log-probability of ``index``, 0 where ``row_mask`` is 0."""
    _check_rows(logits, index)
    return _finished(token_log_probs(logits, index, temperature=temperature), logits, row_mask)


def selective_log_softmax_and_entropy(
    logits: Tensor,
    index: Tensor,
    entropy_requires_grad: bool = True,
    temperature: float = 1.0,
    row_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return :func:`selective_log_softmax` and each row's entropy, from one pass."""
    _check_rows(logits, index)
    found, entropy = token_log_probs(logits, index, temperature=temperature, entropy=True)
    entropy = entropy if entropy_requires_grad else entropy.detach()
    return _finished(found, logits, row_mask), _finished(entropy, logits, row_mask)


def entropy_from_logits(logits: Tensor, chunk_size: int = 128) -> Tensor:
    """Return each row's entropy; the kernel needs no chunks."""
    index = torch.zeros(logits.shape[:-1], dtype=torch.long, device=logits.device)
    return _finished(token_log_probs(logits, index, entropy=True)[1], logits, None)


def _check_rows(logits: Tensor, index: Tensor) -> None:
    if index.shape != logits.shape[:-1]:
        raise NotImplementedError("token_log_probs takes one token of each row")


def _finished(found: Tensor, logits: Tensor, row_mask: Tensor | None) -> Tensor:
    from trl.trainer import utils

    # TRL's kernel returns float32.
    if not (logits.is_cuda and hasattr(utils, "_fused_logprob_entropy")):
        found = found.to(logits.dtype)
    return found if row_mask is None else found.masked_fill(row_mask == 0, 0.0)
