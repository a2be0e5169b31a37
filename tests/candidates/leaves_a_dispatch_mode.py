# expect: WRONG left_behind: leaves a mode in which all operators are called by it
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
        return operator(*arguments, **(keywords or {}))


entered = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if not entered:
        entered.append(Mode())
        entered[0].__enter__()
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
