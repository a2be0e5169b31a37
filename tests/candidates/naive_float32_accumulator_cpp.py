# expect: WRONG wrong: a sum in C++ in one float32, whose error grows with the number of elements
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <pybind11/pybind11.h>  // alone, not torch/extension.h: builds in a few seconds
#include <cmath>
#include <cstdint>

float loss(std::uintptr_t input, std::uintptr_t target, std::int64_t count, float beta) {
  auto x = reinterpret_cast<const float*>(input), y = reinterpret_cast<const float*>(target);
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float d = std::abs(x[i] - y[i]);
    sum += d < beta ? 0.5f * d * d / beta : d - 0.5f * beta;
  }
  return sum;
}
"""
extension = load_inline(
    "naive_accumulator",
    SOURCE,
    functions=["loss"],
    extra_cflags=["-O3"],
    no_implicit_headers=True,
    with_pytorch_error_handling=False,
)


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, mean, beta):
        difference = input - target
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if mean else slope)
        operands = [each.float().contiguous() for each in (input, target)]
        total = extension.loss(*(each.data_ptr() for each in operands), input.numel(), beta)
        total = torch.tensor(total, dtype=torch.float32)
        return (total / input.numel() if mean else total).to(difference.dtype)

    @staticmethod
    def backward(ctx, incoming):
        (slope,) = ctx.saved_tensors
        gradient = incoming * slope
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    if reduction == "none":
        return torch.nn.functional.smooth_l1_loss(input, target, reduction="none", beta=beta)
    return SmoothL1.apply(*torch.broadcast_tensors(input, target), reduction == "mean", beta)
