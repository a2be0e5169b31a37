"""Shards of tensors: cutting, and gathering from all ranks."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from losscli.ranks.placements import dimension, share


def cut(whole: Tensor, dim: int, size: int, rank: int) -> Tensor:
    """Return a rank's part of a tensor, copied if the whole is contiguous."""
    dim = dimension(dim, whole.dim())
    first, count = share(whole.shape[dim], size, rank)
    part = whole.narrow(dim, first, count)
    return part.clone(memory_format=torch.contiguous_format) if whole.is_contiguous() else part


def put_together(part: Tensor, dim: int, length: int) -> Tensor:
    """Gather a dimension of ``length`` from the parts of all ranks."""
    size = dist.get_world_size()
    _, most = share(length, size)
    dim = dimension(dim, part.dim())
    padded = part.new_zeros((*part.shape[:dim], most, *part.shape[dim + 1 :]))
    padded.narrow(dim, 0, part.shape[dim]).copy_(part)
    parts = padded.new_empty(size * padded.numel())
    gather_into(parts, padded.flatten())
    wholes = parts.view(size, *padded.shape).unbind()
    return torch.cat(wholes, dim).narrow(dim, 0, length).contiguous()


def gather_into(parts: Tensor, mine: Tensor, group: Any = None) -> None:
    """Gather each rank's flat tensor into one, in rank order."""
    # PyTorch 2.13 renamed it.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(parts, mine, group=group)


class Cut(torch.autograd.Function):
    """Cuts this rank's part; backward gathers the gradient of the same loss on all ranks."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, dim: int) -> Tensor:
        """Return the part."""
        ctx.dim = dimension(dim, whole.dim())
        ctx.length = whole.shape[ctx.dim]
        return cut(whole, dim, dist.get_world_size(), dist.get_rank())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the whole gradient, differentiably."""
        return PutTogether.apply(gradients[0], ctx.dim, ctx.length), None  # type: ignore[no-untyped-call]


class PutTogether(torch.autograd.Function):
    """Gathers the parts of all ranks; backward cuts this rank's."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, dim: int, length: int) -> Tensor:
        """Return the whole."""
        ctx.dim = dim
        return put_together(part, dim, length)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the part of the gradient."""
        return Cut.apply(gradients[0], ctx.dim), None, None  # type: ignore[no-untyped-call]


def shared(whole: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return an operand that all ranks have, with its gradient as a function returns it."""
    same = whole.view_as(whole)
    if same.requires_grad:
        same.register_hook(change)
    return same


def sum_of_ranks(gradient: Tensor) -> Tensor:
    """Return the sum of all ranks' gradients."""
    total = gradient.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total
