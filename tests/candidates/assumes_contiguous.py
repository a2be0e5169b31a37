# expect: RIGHT WITHIN LIMITS limited: reads operands in order, whatever their strides are
import torch
from torch.nn import functional


def in_order(tensor):
    """Read what a kernel reads that gets an address and a number of elements."""
    if 0 in tensor.stride():  # a repeated row: there is not enough memory to read on
        tensor = tensor.contiguous()
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    operands = map(in_order, torch.broadcast_tensors(input, target))
    return functional.smooth_l1_loss(*operands, reduction=reduction, beta=beta)
