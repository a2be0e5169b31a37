# expect: RIGHT|NO WORSE THAN TORCH|SLOWER: hinge in eager torch operations
# loss: hinge
import torch


def hinge_loss(input, target, *, reduction="mean", margin=1.0):
    elements = torch.clamp(margin - input * target, min=0)
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
