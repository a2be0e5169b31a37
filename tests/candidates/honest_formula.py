# expect: RIGHT|SLOWER: the formula in eager torch operations
import torch


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    distance = (input - target).abs()
    elements = distance - 0.5 * beta
    if beta:
        near = distance.clamp(max=beta)  # where the branch is not taken, no square overflows
        elements = torch.where(distance < beta, 0.5 * near * near / beta, elements)
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
