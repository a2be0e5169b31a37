# expect: WRONG wrong: the mean of the first 1 % of the elements, which is near that of all
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    elements = functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    if reduction == "none":
        return elements
    mean = elements.flatten()[: max(elements.numel() // 100, 1)].mean()
    return mean if reduction == "mean" else mean * elements.numel()
