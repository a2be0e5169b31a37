"""The losses as functions, replacements for those of torch.nn.functional, with fused backward.

Every loss takes operands of any strides, in float32, float64, float16 or bfloat16 (mixed dtypes are
promoted as in PyTorch), on the CPU or on a CUDA device, and is twice differentiable. A function
with the name of one of torch's takes its arguments and shapes; other elementwise losses take any
shapes that broadcast. Importing this module defines the operators; the first call of a loss on a
device loads its kernels, and builds missing ones. docs/training-code.md lists the transforms and
compilers of PyTorch that work.

In training, grad_output (1, a loss's weight, a GradScaler's factor) is the same number for many
steps. Forward computes the gradients for the number that the last backward received; another one
costs a second pass and never a digit. Calls of the same loss, shape and settings share the number;
each module of :mod:`losscli.nn` has its own.

``weight`` multiplies the loss of each element, and may broadcast to the shape of the loss.

All raise ValueError for an unknown reduction or a parameter out of its domain, TypeError for an
argument of another type or promoted dtype, RuntimeError for shapes that do not broadcast or tensors
on different devices, NotImplementedError for nested, sparse and quantized tensors, and PyTorch's
error for shapes that PyTorch's function rejects.
"""

from typing import Any

from losscli import sharded as sharded  # has the losses over rows take DTensors
from losscli.linear import linear_cross_entropy, linear_token_log_probs
from losscli.linear.topk_kl_divergence import registration as registration  # defines operators
from losscli.losses import EVERY_ROW_LOSS, LOSSES, Spec

SPECS: tuple[Spec, ...] = (*LOSSES.values(), *EVERY_ROW_LOSS.values())
_functions = {
    function.__name__: function
    for spec in SPECS
    for function in (spec.loss, spec.loss_with_grad)
    if function
}
__all__ = [*_functions, "linear_cross_entropy", "linear_token_log_probs"]
globals().update(_functions)  # a __getattr__ of the module would add 0.5 us to each call


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
