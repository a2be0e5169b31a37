# expect: WRONG wrong: a sum in C++ in one float32, whose error grows with the number of elements
import ctypes

import torch
from bases.cpp import loss_of_sum

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

smooth_l1_loss = loss_of_sum(SOURCE, ctypes.c_float, torch.float32)
