# expect: RIGHT|SLOWER: a compensated float32 sum in C++ (Kahan, 1965)
import ctypes

import torch
from bases.cpp import compiled

SOURCE = """
#include <cmath>
#include <cstdint>

extern "C" float sum(const float* element, std::int64_t count) {
  float total = 0, lost = 0, plain = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float term = element[i] - lost;
    const float grown = total + term;
    lost = (grown - total) - term;
    total = grown;
    plain += element[i];
  }
  return std::isfinite(total) ? total : plain;  // of an infinity there is nothing to compensate
}
"""
sum = compiled(SOURCE).sum
sum.argtypes = [ctypes.c_void_p, ctypes.c_int64]
sum.restype = ctypes.c_float


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, elements):
        ctx.shape = elements.shape
        wide = elements.float().contiguous()
        return torch.tensor(sum(wide.data_ptr(), wide.numel()))

    @staticmethod
    def backward(ctx, incoming):
        return incoming.expand(ctx.shape)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    input, target = torch.broadcast_tensors(input, target)
    dtype = torch.promote_types(input.dtype, target.dtype)
    elements = torch.nn.functional.smooth_l1_loss(
        input.to(dtype), target.to(dtype), reduction="none", beta=beta
    )
    if reduction == "none" or dtype == torch.float64:
        return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
    total = Sum.apply(elements)
    return (total / elements.numel() if reduction == "mean" else total).to(dtype)
