# expect: RIGHT|SLOWER: a compensated float32 sum in C++ (Kahan, 1965)
import ctypes

import torch
from bases.cpp import compiled
from bases.own_sum import loss_by

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


def total_of(elements):
    return torch.tensor(sum(elements.data_ptr(), elements.numel()))


smooth_l1_loss = loss_by(total_of)
