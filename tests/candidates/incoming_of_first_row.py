# expect: WRONG wrong: the incoming gradient is taken for constant over rows
from bases.own_gradient import SmoothL1, loss_of


class OfFirstRow(SmoothL1):
    @staticmethod
    def backward(ctx, incoming):
        return SmoothL1.backward(ctx, incoming[:1] if incoming.dim() else incoming)


smooth_l1_loss = loss_of(OfFirstRow)
