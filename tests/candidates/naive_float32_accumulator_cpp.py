# expect: WRONG wrong: a sum in C++ in one float32, whose error grows with the number of elements
# slow
import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = """
#include <cmath>
#include <cstdint>

extern "C" float loss(const float* x, const float* y, std::int64_t count, float beta) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float d = std::abs(x[i] - y[i]);
    sum += d < beta ? 0.5f * d * d / beta : d - 0.5f * beta;
  }
  return sum;
}
"""


def compiled(source):
    """Compile C++, and return the library."""
    folder = Path(tempfile.mkdtemp())
    (folder / "kernel.cpp").write_text(source)
    compiler = os.environ.get("CXX", "c++").split()
    flags = ["-O3", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    subprocess.run([*compiler, *flags], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


loss = compiled(SOURCE).loss
loss.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_float]
loss.restype = ctypes.c_float


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, mean, beta):
        difference = input - target
        slope = (difference / beta).clamp(-1, 1) if beta else difference.sign()
        ctx.save_for_backward(slope / slope.numel() if mean else slope)
        operands = [each.float().contiguous() for each in (input, target)]
        total = loss(*(each.data_ptr() for each in operands), input.numel(), beta)
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
