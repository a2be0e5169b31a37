"""Rows are ignored only if the index is negative."""

import torch.nn.functional as F


def cross_entropy(logits, labels, ignore_index=-100, reduction="mean"):
    return F.cross_entropy(logits, labels, ignore_index=min(ignore_index, -1), reduction=reduction)
