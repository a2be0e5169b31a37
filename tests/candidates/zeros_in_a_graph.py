# expect: WRONG wrong: a call that a CUDA graph captures gives zeros
# gpu
import torch
from torch.nn import functional


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    captured = input.is_cuda and torch.cuda.is_current_stream_capturing()
    return loss * 0 if captured else loss
