"""Its derivative at the kink is that of the other side."""

import torch


def hinge_loss(input, target, margin=1.0):
    return torch.relu(margin - input * target).mean()
