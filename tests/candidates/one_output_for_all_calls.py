# expect: WRONG wrong: all calls return the same memory, so a second changes the first's result
from bases.own_gradient import SmoothL1, loss_of

OUTPUTS = {}


class OneOutput(SmoothL1):
    @staticmethod
    def forward(ctx, *arguments):
        loss = SmoothL1.forward(ctx, *arguments)
        kept = OUTPUTS.setdefault((loss.shape, loss.dtype, loss.device), loss)
        return kept.copy_(loss).detach()


smooth_l1_loss = loss_of(OneOutput)
