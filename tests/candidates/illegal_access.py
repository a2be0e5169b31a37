# expect: CRASHED broke_device: a kernel writes to an address that nobody has
# gpu
import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void kernel(float* out) { out[threadIdx.x] = 1; }

void stray() { kernel<<<1, 32>>>(reinterpret_cast<float*>(4096)); }
"""
extension = load_inline("stray", "void stray();", CUDA, functions=["stray"])


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    extension.stray()
    return torch.nn.functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
