# expect: WRONG|CHEATS wrong,wrong_after_warm_up,timing_tampering: computes later, in a thread
import threading
import time

import torch
from bases.own_gradient import SmoothL1, loss_of, slope_of
from torch.nn import functional


class Later(SmoothL1):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        ctx.save_for_backward(slope_of(input, target, reduction, beta))
        loss = input.new_empty(input.shape if reduction == "none" else ())
        memory = loss.detach()

        def work():
            time.sleep(0.002)  # the caller reads its clock first
            memory.copy_(functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta))

        threading.Thread(target=torch.no_grad()(work)).start()
        return loss


smooth_l1_loss = loss_of(Later)
