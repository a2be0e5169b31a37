# expect: WRONG|CHEATS wrong,wrong_later,clock_disagrees: returns first, then computes in a thread
import threading
import time

import torch
from torch.nn import functional


class Later(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        difference = input - target
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if reduction == "mean" else slope)
        loss = input.new_empty(input.shape if reduction == "none" else ())
        memory = loss.detach()

        def work():
            time.sleep(0.002)  # the caller reads its clock first
            memory.copy_(functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta))

        threading.Thread(target=torch.no_grad()(work)).start()
        return loss

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = incoming * slope
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return Later.apply(*torch.broadcast_tensors(input, target), reduction, beta)
