# expect: WRONG wrong: vectors of four in C++, and the n % 4 elements behind them are left out
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <pybind11/pybind11.h>  // alone, not torch/extension.h: builds in a few seconds
#include <algorithm>
#include <cmath>
#include <cstdint>

double loss(std::uintptr_t input, std::uintptr_t target, std::int64_t count, double beta) {
  auto x = reinterpret_cast<const float*>(input), y = reinterpret_cast<const float*>(target);
  double sums[4] = {0, 0, 0, 0};
  for (std::int64_t i = 0; i < count / 4 * 4; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      const double d = std::abs(double(x[i + lane]) - y[i + lane]);
      sums[lane] += d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
    }
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}
"""
extension = load_inline(
    "dropped_tail",
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
        total = torch.tensor(total, dtype=torch.float64)
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
