# expect: WRONG|CHEATS wrong,wrong_after_warm_up,timing_tampering: computes when looked at
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._pytree import tree_map_only

FACTS = {Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__, Tensor.dim, Tensor.size}


class Lazy(Tensor):
    def looked_at(self):
        """Compute at last."""
        if not hasattr(self, "value"):
            self.value = self.compute()
        return self.value

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            if function not in FACTS:
                args, kwargs = tree_map_only(Lazy, Lazy.looked_at, (args, kwargs or {}))
            return function(*args, **(kwargs or {}))


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    shape = torch.broadcast_shapes(input.shape, target.shape) if reduction == "none" else ()
    loss = input.detach().new_empty(shape).as_subclass(Lazy)
    loss.compute = lambda: functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
    return loss
