"""The losses as functions, replacements for those of torch.nn.functional, with fused backward.

Every loss takes operands of any strides, in float32, float64, float16 or bfloat16 (mixed dtypes are
promoted as PyTorch promotes them), on the CPU or on a CUDA device, and is differentiable twice in
both. A function with the name of one of torch's takes the shapes that torch's takes, and the other
losses of each element take any shapes that broadcast. The first call of a loss on a device loads
its kernels, which are built if need be. Importing this module defines the operators and builds
nothing: a program that ``torch.export`` saved runs once it is imported. PyTorch's transforms and
compilers work with the losses as docs/training-code.md lists.

In training the incoming gradient (1, a loss's weight, a GradScaler's factor) is the same number for
many steps. Forward writes the gradients for the number that the last backward received; another
number costs a second pass and never a digit. Calls of these functions share their expectation with
other calls of the same loss, shape and settings; each module of :mod:`losscli.nn` has its own.

``weight`` multiplies the loss of each element. Any tensor that broadcasts to the shape of the loss
will do, where PyTorch asks for one of the shape of the input. It calls a separate kernel, built at
its first use.

All of them raise ValueError for an unknown reduction or a parameter out of its domain, TypeError
for an argument of another kind or where the promoted dtype is not one of these four, RuntimeError
for shapes that do not broadcast or tensors on different devices, and NotImplementedError for
nested, sparse and quantized tensors. Their arguments are those of torch's function of the same
name, in the same order, and so are the errors for shapes that torch's refuses.
"""

from __future__ import annotations

from typing import Any

from losscli import sharded as sharded  # has the losses over rows take DTensors
from losscli.linear import linear_cross_entropy, linear_token_log_probs
from losscli.linear.topk_kl_divergence import (
    registration as registration,  # defines torch.ops.losscli
)
from losscli.losses import EVERY_ROW_LOSS, LOSSES, Spec

_specs: tuple[Spec, ...] = (*LOSSES.values(), *EVERY_ROW_LOSS.values())
_functions = {
    function.__name__: function for spec in _specs for function in (spec.loss, spec.loss_with_grad)
}
__all__ = [
    *_functions,
    "linear_cross_entropy",
    "linear_token_log_probs",
]
globals().update(_functions)  # a __getattr__ of the module would add 0.5 us to each call


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
