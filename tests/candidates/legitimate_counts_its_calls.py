# expect: RIGHT|SLOWER: counts its calls, and has methods and branches of `pass` alone
from torch.nn import functional

CALLS = {"count": 0}


class Hooks:
    def before(self, input):
        pass

    def after(self, loss):
        pass


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    hooks = Hooks()
    CALLS["count"] += 1
    hooks.before(input)
    if input.requires_grad:
        pass
    loss = functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    hooks.after(loss)
    return loss
