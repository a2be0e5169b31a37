# expect: WRONG|CHEATS wrong,wrong_later,clock_disagrees: nobody waits for the stream that computes
# gpu
import torch
from torch.nn import functional

streams = {}


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        difference = input - target
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if reduction == "mean" else slope)
        loss = input.new_zeros(input.shape if reduction == "none" else ())
        side = streams.setdefault(input.device, torch.cuda.Stream(input.device))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)  # half a millisecond, so that the race is always lost
            loss.copy_(functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta))
        return loss

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = incoming * slope
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return SmoothL1.apply(*torch.broadcast_tensors(input, target), reduction, beta)
