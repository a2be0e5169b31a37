# expect: WRONG left_behind: leaves a mode in which all functions of torch are called by it
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class Mode(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), keywords=None):
        return function(*arguments, **(keywords or {}))


entered = []


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if not entered:
        entered.append(Mode())
        entered[0].__enter__()
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
