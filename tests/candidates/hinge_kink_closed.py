# expect: WRONG wrong: at the kink the gradient is 0, where it has to pass
# loss: hinge
import torch


def hinge_loss(input, target, *, reduction="mean", margin=1.0):
    distance = margin - input * target
    elements = torch.where(distance > 0, distance, torch.zeros_like(distance))
    elements = torch.where(distance.isnan(), distance, elements)
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
