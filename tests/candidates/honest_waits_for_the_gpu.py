# expect: RIGHT|SLOWER: reads a number on the host, so that no CUDA graph can capture it
# gpu
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    largest = float(input.detach().abs().max()) if input.numel() else 0.0
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss if largest >= 0 else loss.clone()  # NaN: another path to the same result
