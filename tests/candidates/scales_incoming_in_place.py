# expect: WRONG wrong: the backward pass divides the caller's incoming gradient in place
from bases.own_gradient import SmoothL1, loss_of, slope_of
from torch.nn import functional


class InPlace(SmoothL1):
    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        ctx.save_for_backward(slope_of(input, target, "sum", beta))
        ctx.count = input.numel() if reduction == "mean" else 1
        return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)

    @staticmethod
    def backward(ctx, incoming):
        return SmoothL1.backward(ctx, incoming.div_(ctx.count))


smooth_l1_loss = loss_of(InPlace)
