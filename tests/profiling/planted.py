# mypy: ignore-errors
"""Three kernels of mean squared error, each with a bound of its own; for `losscli profile`."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def near_limit_kernel(x, y, sums, elements, size: tl.constexpr):
    place = tl.program_id(0) * size + tl.arange(0, size)
    inside = place < elements
    off = tl.load(x + place, inside, 0.0) - tl.load(y + place, inside, 0.0)
    tl.store(sums + tl.program_id(0), tl.sum(off * off))


@triton.jit
def uncoalesced_kernel(x, y, sums, elements, blocks, size: tl.constexpr):
    # Neighbouring threads read elements that are as far apart as there are blocks.
    place = tl.arange(0, size) * blocks + tl.program_id(0)
    inside = place < elements
    off = tl.load(x + place, inside, 0.0) - tl.load(y + place, inside, 0.0)
    tl.store(sums + tl.program_id(0), tl.sum(off * off))


@triton.jit
def few_warps_kernel(x, y, sums, elements, each, size: tl.constexpr):
    start = tl.program_id(0) * each
    total = tl.zeros((size,), tl.float32)
    for first in range(0, each, size):
        place = start + first + tl.arange(0, size)
        inside = (place < elements) & (place < start + each)
        off = tl.load(x + place, inside, 0.0) - tl.load(y + place, inside, 0.0)
        total += off * off
    tl.store(sums + tl.program_id(0), tl.sum(total))


def near_limit(input, target):
    blocks = triton.cdiv(input.numel(), BLOCK)
    sums = torch.empty(blocks, device=input.device)
    near_limit_kernel[(blocks,)](input, target, sums, input.numel(), BLOCK)
    return sums.sum() / input.numel()


def uncoalesced(input, target):
    blocks = triton.cdiv(input.numel(), BLOCK)
    sums = torch.empty(blocks, device=input.device)
    uncoalesced_kernel[(blocks,)](input, target, sums, input.numel(), blocks, BLOCK)
    return sums.sum() / input.numel()


def few_warps(input, target):
    blocks = 32
    sums = torch.empty(blocks, device=input.device)
    each = triton.cdiv(input.numel(), blocks)
    few_warps_kernel[(blocks,)](input, target, sums, input.numel(), each, BLOCK)
    return sums.sum() / input.numel()
