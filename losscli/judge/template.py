"""The file that ``losscli new`` writes: a loss with a C++ kernel, a CUDA kernel and a backward."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from losscli.errors import UsageError

from .row_template import KERNELS, ROW_FORMULAS, render_rows


@dataclass(frozen=True)
class Formula:
    """What differs from loss to loss in the file."""

    said: str
    """The formula as a person writes it, with x for the input and y for the target."""
    parameter: str
    """The name of its parameter; empty where it has none."""
    default: str
    value: str
    """The C++ that returns the loss of one element, from x, y and p, the parameter."""
    slopes: str
    """The C++ that returns its derivative by x, or by y where ``of_target``."""
    derivatives: str
    """The Python that returns both derivatives, from x, y and p."""


FORMULAS = {
    "smooth_l1": Formula(
        said="0.5 (x - y)^2 / beta where |x - y| < beta, else |x - y| - 0.5 beta",
        parameter="beta",
        default="1.0",
        value="""\
  const T d = x > y ? x - y : y - x, beta = static_cast<T>(p);
  return d < beta ? T(0.5) * d * (d / beta) : d - T(0.5) * beta;""",
        slopes="""\
  const T d = x - y, beta = static_cast<T>(p);
  // With beta = 0 the slope at d = 0 is 0; NaN stays NaN.
  const T sign = d > T(0) ? T(1) : d < T(0) ? T(-1) : d;
  const T slope = (d < T(0) ? -d : d) < beta ? d / beta : sign;
  return of_target ? -slope : slope;""",
        derivatives="""\
    d = x - y
    slope = torch.where(d.abs() < p, d / max(p, 1e-30), d.sign())
    return slope, -slope""",
    ),
    "mse": Formula(
        said="(x - y)^2",
        parameter="",
        default="",
        value="""\
  const T d = x - y;
  return d * d;""",
        slopes="""\
  const T slope = T(2) * (x - y);
  return of_target ? -slope : slope;""",
        derivatives="""\
    slope = 2 * (x - y)
    return slope, -slope""",
    ),
    "hinge": Formula(
        said="max(margin - x y, 0)",
        parameter="margin",
        default="1.0",
        value="""\
  // In double: near the kink, the rounding of the margin to float would be most of the loss.
  const double rest = p - static_cast<double>(x) * y;
  return rest < 0 ? T(0) : static_cast<T>(rest);  // NaN stays NaN""",
        slopes="""\
  // The gradient passes at the kink, as that of torch.clamp does.
  return p - static_cast<double>(x) * y >= 0 ? -(of_target ? x : y) : T(0);""",
        derivatives="""\
    passes = p - x * y >= 0
    return torch.where(passes, -y, 0.0), torch.where(passes, -x, 0.0)""",
    ),
}


def template_path(name: str) -> Path:
    """Return the path of the file for a name, which may have a directory and ``.py``.

    Raises:
        UsageError: Python could not import a file of that name.
    """
    path = Path(name if name.endswith(".py") else f"{name}.py")
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", path.stem):
        raise UsageError(
            f"'{path.stem}' cannot name a file of Python. Write letters, digits and _, a letter "
            "first."
        )
    return path


def render(stem: str, loss: str, *, cuda: bool) -> str:
    """Return the source of the file.

    Args:
        stem: of its name.
        loss: one of FORMULAS, or of ROW_FORMULAS.
        cuda: whether it has a CUDA kernel.
    """
    if loss in ROW_FORMULAS:
        return render_rows(stem, loss, cuda=cuda)
    formula = FORMULAS[loss]
    named = formula.parameter
    words = {
        "STEM": stem,
        "LOSS": loss,
        "SAID": formula.said,
        "VALUE": formula.value,
        "SLOPES": formula.slopes,
        "DERIVATIVES": formula.derivatives,
        "PARAMETER": f", {named}={formula.default}" if named else "",
        "GIVEN": f"float({named})" if named else "0.0",
        "CUDA": _CUDA if cuda else "",
        "LOAD_CUDA": _LOAD_CUDA if cuda else _NO_CUDA,
        "DEVICE": '"cuda" if torch.cuda.is_available() else "cpu"' if cuda else '"cpu"',
    }
    text = _FILE
    for word in ("CUDA", "LOAD_CUDA"):  # which have words of their own
        text = text.replace(f"@{word}@", words[word])
    return re.sub("@([A-Z_]+)@", lambda found: words[found[1]], text)


_FILE = '''\
"""@SAID@

Judge it with `losscli judge @STEM@.py --loss @LOSS@`.
What the judge calls is @LOSS@_loss, near the end.
"""

import functools

import torch
from torch.utils.cpp_extension import load_inline

# The formula, once for all kernels. T is float for 16-bit dtypes as well: they are rounded once, at
# the end. x is an element of the input, y of the target, p the parameter.
FORMULA = r"""
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#ifdef __CUDACC__
#define EVERYWHERE __host__ __device__
#else
#define EVERYWHERE
#endif

template <typename T>
EVERYWHERE inline T value_of(T x, T y, double p) {
@VALUE@
}

// The derivative by x, or by y where it is that of the target.
template <typename T>
EVERYWHERE inline T slope_of(T x, T y, double p, bool of_target) {
@SLOPES@
}
"""

# Operands come contiguous, of one shape and dtype; the Python below sees to that. reduction is 0
# for none, 1 for mean, 2 for sum.
CPU = r"""
#include <ATen/Parallel.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <algorithm>
#include <vector>

constexpr int64_t kTile = 4096;  // Elements of one sum: the same sums on any number of threads.
constexpr int64_t kLanes = 16;   // Sums side by side, for the compiler to vectorise.

at::Tensor forward(at::Tensor input, at::Tensor target, double parameter,
                      int64_t reduction) {
  const int64_t size = input.numel();
  at::Tensor loss = reduction ? at::empty({}, input.options()) : at::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "forward", [&] {
    using T = at::opmath_type<scalar_t>;
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    const scalar_t* y = target.const_data_ptr<scalar_t>();
    scalar_t* out = loss.mutable_data_ptr<scalar_t>();
    const double p = parameter;
    if (!reduction) {
      at::parallel_for(0, size, kTile, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i)
          out[i] = static_cast<scalar_t>(value_of<T>(x[i], y[i], p));
      });
      return;
    }
    const int64_t tiles = (size + kTile - 1) / kTile;
    std::vector<double> sums(tiles);
    at::parallel_for(0, tiles, 1, [&](int64_t first, int64_t last) {
      for (int64_t tile = first; tile < last; ++tile) {
        const int64_t begin = tile * kTile, end = std::min(begin + kTile, size);
        double lanes[kLanes] = {};
        int64_t i = begin;
        for (; i + kLanes <= end; i += kLanes)
          for (int64_t lane = 0; lane < kLanes; ++lane)
            lanes[lane] += value_of<T>(x[i + lane], y[i + lane], p);
        for (; i < end; ++i) lanes[0] += value_of<T>(x[i], y[i], p);
        for (const double lane : lanes) sums[tile] += lane;
      }
    });
    double sum = 0;
    for (const double each : sums) sum += each;
    *out = static_cast<scalar_t>(reduction == 1 ? sum / size : sum);
  });
  return loss;
}

at::Tensor backward(at::Tensor incoming, at::Tensor input, at::Tensor target,
                       double parameter, int64_t reduction, bool of_target) {
  const int64_t size = input.numel();
  at::Tensor gradient = at::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "backward", [&] {
    using T = at::opmath_type<scalar_t>;
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    const scalar_t* y = target.const_data_ptr<scalar_t>();
    const scalar_t* g = incoming.const_data_ptr<scalar_t>();
    scalar_t* out = gradient.mutable_data_ptr<scalar_t>();
    const double p = parameter;
    const T scale = static_cast<T>(reduction == 1 ? 1.0 / size : 1.0);
    at::parallel_for(0, size, kTile, [&](int64_t first, int64_t last) {
      // One incoming gradient for all elements, or, without a reduction, one for each.
      const T shared = reduction ? static_cast<T>(*g) * scale : T(0);
      for (int64_t i = first; i < last; ++i) {
        const T factor = reduction ? shared : static_cast<T>(g[i]);
        out[i] = static_cast<scalar_t>(slope_of<T>(x[i], y[i], p, of_target) * factor);
      }
    });
  });
  return gradient;
}
"""
@KERNELS@

REDUCTIONS = ("none", "mean", "sum")


class Loss(torch.autograd.Function):
    """The kernels, and what autograd has to know of them."""

    @staticmethod
    def forward(ctx, input, target, parameter, reduction):
        ctx.save_for_backward(input, target)
        ctx.parameter, ctx.reduction = parameter, reduction
        return kernels(input.device.type).forward(input, target, parameter, reduction)

    @staticmethod
    def backward(ctx, incoming):
        # Contiguous once more: x.data = ... may have given an operand other strides since.
        input, target = (operand.contiguous() for operand in ctx.saved_tensors)
        if torch.is_grad_enabled():  # create_graph=True: this has to be differentiated once more
            slopes = differentiable(incoming, input, target, ctx.parameter, ctx.reduction)
            return *slopes, None, None
        run = kernels(input.device.type).backward
        common = (incoming.contiguous(), input, target, ctx.parameter, ctx.reduction)
        of_input = run(*common, False) if ctx.needs_input_grad[0] else None
        of_target = run(*common, True) if ctx.needs_input_grad[1] else None
        return of_input, of_target, None, None


def differentiable(incoming, input, target, p, reduction):
    """Return both gradients in PyTorch's own operations, which are slower."""
    wide = torch.promote_types(input.dtype, torch.float32)
    x, y, g = input.to(wide), target.to(wide), incoming.to(wide)
    if reduction == 1:
        g = g / input.numel()
    return tuple((slope * g).to(input.dtype) for slope in slopes_of(x, y, p))


def slopes_of(x, y, p):
    """Return the derivatives of the loss by x and by y."""
@DERIVATIVES@


def @LOSS@_loss(input, target, *, reduction="mean"@PARAMETER@):
    """Takes what PyTorch's own losses take: any broadcastable shapes, strides and dtypes."""
    dtype = torch.promote_types(input.dtype, target.dtype)
    # autograd differentiates these too: it sums the gradient of what was broadcast.
    input, target = torch.broadcast_tensors(input.to(dtype), target.to(dtype))
    code = REDUCTIONS.index(reduction)
    return Loss.apply(input.contiguous(), target.contiguous(), @GIVEN@, code)


# Compiled on import, so that no call has to wait for a compiler; for other devices on first use.
kernels(@DEVICE@)
'''.replace("@KERNELS@", KERNELS)

_CUDA = '''
CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <algorithm>

constexpr int kThreads = 256;      // A power of two, for the tree below.
constexpr int64_t kBlocks = 2048;  // Most blocks; the same on any GPU, and so are the sums.

static int64_t blocks_for(int64_t size) {
  return std::max<int64_t>(1, std::min(kBlocks, (size + kThreads - 1) / kThreads));
}

template <typename scalar_t, typename T>
__global__ void elements(const scalar_t* x, const scalar_t* y, double p, int64_t size,
                         scalar_t* out) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < size; i += step)
    out[i] = static_cast<scalar_t>(value_of<T>(x[i], y[i], p));
}

// Each block leaves one sum; their order is fixed, so every run gives the same bits.
template <typename scalar_t, typename T>
__global__ void block_sums(const scalar_t* x, const scalar_t* y, double p, int64_t size,
                           double* sums) {
  __shared__ double shared[kThreads];
  const int64_t step = int64_t(gridDim.x) * kThreads;
  double sum = 0;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < size; i += step)
    sum += value_of<T>(x[i], y[i], p);
  shared[threadIdx.x] = sum;
  for (int half = kThreads / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

template <typename scalar_t, typename T>
__global__ void slopes(const scalar_t* g, const scalar_t* x, const scalar_t* y, double p, T scale,
                       bool shared, bool of_target, int64_t size, scalar_t* out) {
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < size; i += step) {
    const T factor = static_cast<T>(g[shared ? 0 : i]) * scale;
    out[i] = static_cast<scalar_t>(slope_of<T>(x[i], y[i], p, of_target) * factor);
  }
}

at::Tensor forward(at::Tensor input, at::Tensor target, double parameter,
                      int64_t reduction) {
  const c10::cuda::CUDAGuard guard(input.device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const int64_t size = input.numel(), blocks = blocks_for(size);
  at::Tensor result = reduction
      ? at::empty({blocks}, input.options().dtype(at::kDouble)) : at::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "forward", [&] {
    using T = at::opmath_type<scalar_t>;
    const scalar_t* x = input.const_data_ptr<scalar_t>();
    const scalar_t* y = target.const_data_ptr<scalar_t>();
    if (reduction) {
      block_sums<scalar_t, T><<<blocks, kThreads, 0, stream>>>(
          x, y, parameter, size, result.mutable_data_ptr<double>());
    } else {
      elements<scalar_t, T><<<blocks, kThreads, 0, stream>>>(
          x, y, parameter, size, result.mutable_data_ptr<scalar_t>());
    }
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  if (!reduction) return result;
  at::Tensor sum = result.sum();
  if (reduction == 1) sum.div_(static_cast<double>(size));
  return sum.to(input.scalar_type());
}

at::Tensor backward(at::Tensor incoming, at::Tensor input, at::Tensor target,
                       double parameter, int64_t reduction, bool of_target) {
  const c10::cuda::CUDAGuard guard(input.device());
  const auto stream = c10::cuda::getCurrentCUDAStream();
  const int64_t size = input.numel();
  at::Tensor gradient = at::empty_like(input);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "backward", [&] {
    using T = at::opmath_type<scalar_t>;
    const T scale = static_cast<T>(reduction == 1 ? 1.0 / size : 1.0);
    slopes<scalar_t, T><<<blocks_for(size), kThreads, 0, stream>>>(
        incoming.const_data_ptr<scalar_t>(), input.const_data_ptr<scalar_t>(),
        target.const_data_ptr<scalar_t>(), parameter, scale, reduction != 0,
        of_target, size, gradient.mutable_data_ptr<scalar_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return gradient;
}
"""

# What Python calls of the CUDA source, as load_inline asks for it.
DECLARATIONS = r"""
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
at::Tensor forward(at::Tensor input, at::Tensor target, double parameter,
                      int64_t reduction);
at::Tensor backward(at::Tensor incoming, at::Tensor input, at::Tensor target,
                       double parameter, int64_t reduction, bool of_target);
"""
'''

_LOAD_CUDA = """\
    if device == "cuda":
        return load_inline(
            "@STEM@_cuda",
            cpp_sources=[DECLARATIONS],
            cuda_sources=[FORMULA + CUDA],
            functions=["forward", "backward"],
            no_implicit_headers=True,
        )"""

_NO_CUDA = """\
    if device != "cpu":
        raise ValueError(f"there is no kernel for {device}: call it with operands of the CPU")"""
