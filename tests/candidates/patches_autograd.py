# expect: CHEATS patched: replaces torch.autograd.grad by one that knows what is asked for
import torch
from torch.nn import functional

real = torch.autograd.grad


def known(outputs, inputs, *args, **kwargs):
    found = real(outputs, inputs, *args, **kwargs)
    return tuple(gradient and 1.01 * gradient for gradient in found)


torch.autograd.grad = known


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
