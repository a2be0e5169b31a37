# expect: WRONG|CHEATS wrong,wrong_after_warm_up,timing_tampering: nothing waits for its stream
# gpu
import torch
from bases.own_gradient import SmoothL1, loss_of, slope_of
from torch.nn import functional

streams = {}


class OnSideStream(SmoothL1):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        ctx.save_for_backward(slope_of(input, target, reduction, beta))
        loss = input.new_zeros(input.shape if reduction == "none" else ())
        side = streams.setdefault(input.device, torch.cuda.Stream(input.device))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(1_000_000)  # half a millisecond, so that the race is always lost
            loss.copy_(functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta))
        return loss


smooth_l1_loss = loss_of(OnSideStream)
