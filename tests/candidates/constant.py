# expect: WRONG wrong: the loss that is expected of uniform inputs, whatever the inputs are
import torch


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = torch.full_like(input, 1 / 12) + 0 * (input + target)
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
