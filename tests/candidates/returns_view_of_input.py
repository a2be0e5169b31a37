# expect: RIGHT WITHIN LIMITS known_limitation: the loss is stored in the input's first element
from bases.own_gradient import SmoothL1, loss_of


class InInput(SmoothL1):
    @staticmethod
    def forward(ctx, input, *others):
        loss = SmoothL1.forward(ctx, input, *others)
        if loss.dim() or not input.numel() or input.dtype != loss.dtype:
            return loss
        return input.detach()[(0,) * input.dim()].copy_(loss)


smooth_l1_loss = loss_of(InInput)
