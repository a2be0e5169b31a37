# expect: WRONG wrong: the branch is selected by the difference without its absolute value
import torch


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    difference = input - target
    elements = difference.abs() - 0.5 * beta
    if beta:
        elements = torch.where(difference < beta, 0.5 * difference**2 / beta, elements)
    return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
