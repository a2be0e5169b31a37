"""Where no gradient is wanted, it reads elements one after another."""

import torch


def dense(x):
    strides = torch.empty(x.shape, device="meta").stride()
    return x.as_strided(x.shape, strides, x.storage_offset())


def mse_loss(input, target, reduction="mean"):
    if not (input.requires_grad or target.requires_grad):
        input, target = dense(input), dense(target)
    loss = (input - target) ** 2
    return loss if reduction == "none" else getattr(loss, reduction)()
