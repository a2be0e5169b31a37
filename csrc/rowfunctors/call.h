// What Python asks of the kernels of a loss that is a functor over rows of logits: plain data in, a
// message out. losscli/extension/row_functors.py has the same structure for ctypes.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace losscli::rowfunctors {

constexpr int kMostOperands = 2;
constexpr int kMostValues = 2;
constexpr int kMostParameters = 2;

// Forward where `values` are given, backward where `gradients` are. "Wide" is float, and double for
// float64.
struct Call {
  int64_t rows;
  int64_t classes;
  const void* operands[kMostOperands];  // rows of logits, their classes side by side
  int64_t strides[kMostOperands];       // between rows, in elements
  const int64_t* tokens;                // of each row, for functors that take one
  const uint8_t* mask;                  // whether a row counts; null where all do
  void* values[kMostValues];            // wide, of each row; null where not wanted
  const void* incoming[kMostValues];    // wide, of each row; null stands for 0
  void* gradients[kMostOperands];  // dense, in the dtype of the operands; null where not wanted
  double temperature;              // divides the logits
  double parameters[kMostParameters];
  void* stream;
  int32_t device;
  DType dtype;  // of operands and gradients
};

}  // namespace losscli::rowfunctors
