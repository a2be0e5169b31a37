# expect: WRONG wrong: with weights, the mean divides by the number of rows, not by their weights
# loss: nll
from torch.nn import functional


def nll_loss(input, target, weight=None, ignore_index=-100, reduction="mean"):
    settings = {"ignore_index": ignore_index, "reduction": "none"}
    if weight is None:
        return functional.nll_loss(input, target, ignore_index=ignore_index, reduction=reduction)
    loss = functional.nll_loss(input, target, weight, **settings)
    if reduction == "mean":
        return loss.sum() / (target != ignore_index).sum()
    return loss if reduction == "none" else loss.sum()
