# expect: RIGHT|SLOWER: works on a side stream, which the current one waits for
# gpu
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if not input.is_cuda:
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(here)
    with torch.cuda.stream(side):
        loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    for each in (input, target):
        each.record_stream(side)
    here.wait_stream(side)
    loss.record_stream(here)
    return loss
