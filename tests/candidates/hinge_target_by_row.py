# expect: WRONG wrong: a row of targets belongs to the columns, and is read along the rows
# loss: hinge
import torch


def hinge_loss(input, target, *, reduction="mean", margin=1.0):
    if input.dim() == 2 and target.dim() == 1 and len(target):
        target = target[torch.arange(len(input), device=target.device) % len(target), None]
    elements = torch.clamp(margin - input * target, min=0)
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
