# expect: RIGHT|SAME ERROR AS PYTORCH: torch's own op of three operands
# loss: triplet_margin
import torch
from torch.nn import functional


def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"
):
    operands = torch.broadcast_tensors(anchor, positive, negative)
    return functional.triplet_margin_loss(
        *operands, margin=margin, p=p, eps=eps, swap=bool(swap), reduction=reduction
    )
