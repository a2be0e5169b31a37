"""PyTorch's order of arguments: an operand follows two settings."""

import torch.nn.functional as F


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, reduction="mean"):
    return F.multi_margin_loss(input, target, p, margin, weight, reduction=reduction)
