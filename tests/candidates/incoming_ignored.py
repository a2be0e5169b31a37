# expect: WRONG wrong: the incoming gradient is taken for 1
import torch
from bases.own_gradient import SmoothL1, loss_of


class OfOne(SmoothL1):
    @staticmethod
    def backward(ctx, incoming):
        return SmoothL1.backward(ctx, torch.ones_like(incoming))


smooth_l1_loss = loss_of(OfOne)
