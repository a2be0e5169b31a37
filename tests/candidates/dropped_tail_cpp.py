# expect: WRONG wrong: vectors of four in C++, and the n % 4 elements behind them are left out
import ctypes

import torch
from bases.cpp import loss_of_sum

SOURCE = """
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" double loss(const float* x, const float* y, std::int64_t count, double beta) {
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

smooth_l1_loss = loss_of_sum(SOURCE, ctypes.c_double, torch.float64)
