# expect: RIGHT|SLOWER: a plain fused kernel in C++, forward and backward, through load_inline
import torch
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <pybind11/pybind11.h>  // alone, not torch/extension.h: builds in a few seconds
#include <algorithm>
#include <cmath>
#include <cstdint>

using Address = std::uintptr_t;
using Count = std::int64_t;

double element(double d, double beta) {
  d = std::abs(d);
  return d < beta ? 0.5 * d * d / beta : d - 0.5 * beta;
}

double slope(double d, double beta) {
  if (std::abs(d) < beta) return d / beta;
  return d == 0 ? 0 : d > 0 ? 1 : d < 0 ? -1 : d;
}

// Writes each element where there is an output, and returns their sum.
template <typename T>
double forward(Address input, Address target, Address output, Count count, double beta) {
  auto x = reinterpret_cast<const T*>(input), y = reinterpret_cast<const T*>(target);
  auto out = reinterpret_cast<T*>(output);
  double sum = 0;
  for (Count i = 0; i < count;) {
    double part = 0;  // of some elements: one sum of many would lose digits of float64 operands
    for (const Count end = std::min(i + 1024, count); i < end; ++i) {
      const double value = element(double(x[i]) - double(y[i]), beta);
      if (out) out[i] = T(value);
      part += value;
    }
    sum += part;
  }
  return sum;
}

// A step of 0 reads one incoming gradient for all elements.
template <typename T>
void backward(Address input, Address target, Address incoming, Count step, Address gradient,
              Count count, double share, double beta) {
  auto x = reinterpret_cast<const T*>(input), y = reinterpret_cast<const T*>(target);
  auto in = reinterpret_cast<const T*>(incoming);
  auto out = reinterpret_cast<T*>(gradient);
  for (Count i = 0; i < count; ++i)
    out[i] = T(in[i * step] * share * slope(double(x[i]) - double(y[i]), beta));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("forward_float32", forward<float>).def("forward_float64", forward<double>);
  module.def("backward_float32", backward<float>).def("backward_float64", backward<double>);
}
"""
extension = load_inline("fused", SOURCE, extra_cflags=["-O3"], no_implicit_headers=True)


def kernel(name, dtype):
    return getattr(extension, f"{name}_{str(dtype).removeprefix('torch.')}")


class SmoothL1(torch.autograd.Function):
    """The loss of two contiguous tensors of one shape and one dtype, float32 or float64."""

    @staticmethod
    def forward(ctx, input, target, reduction, beta):
        ctx.save_for_backward(input, target)
        ctx.shape, ctx.reduction, ctx.beta = input.shape, reduction, beta
        out = torch.empty_like(input) if reduction == "none" else None
        addresses = input.data_ptr(), target.data_ptr(), 0 if out is None else out.data_ptr()
        total = kernel("forward", input.dtype)(*addresses, input.numel(), beta)
        if out is not None:
            return out
        total = torch.tensor(total, dtype=torch.float64)
        return (total / input.numel() if reduction == "mean" else total).to(input.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        # Whoever sets x.data between the passes may have changed strides and shape.
        input, target = (each.contiguous() for each in ctx.saved_tensors)
        if not input.shape == target.shape == ctx.shape:
            raise RuntimeError(f"expected operands of shape {ctx.shape} as in the forward pass")
        incoming, gradient = incoming.contiguous(), torch.empty_like(input)
        share = 1 / max(input.numel(), 1) if ctx.reduction == "mean" else 1.0
        kernel("backward", input.dtype)(
            *(input.data_ptr(), target.data_ptr()),
            *(incoming.data_ptr(), int(ctx.reduction == "none")),
            *(gradient.data_ptr(), input.numel(), share, ctx.beta),
        )
        return gradient, -gradient, None, None


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    dtype = torch.promote_types(input.dtype, target.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    operands = (each.to(wide).contiguous() for each in torch.broadcast_tensors(input, target))
    return SmoothL1.apply(*operands, reduction, beta).to(dtype)
