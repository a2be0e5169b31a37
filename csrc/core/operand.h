// Tensors as kernels see them: an iteration space, and for each operand a pointer with strides.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace losscli {

constexpr int kMostDimensions = 12;
constexpr int kMostOperands = 4;

// The dimensions over which a loss is computed, the fastest first, as few as the operands allow:
// neighbours that every operand walks as one are one. There is at least one, and none of size 1
// but where it is alone. Outputs of full size are dense in this order.
struct Space {
  int64_t size = 0;  // the product of `sizes`
  int32_t dimensions = 1;
  int64_t sizes[kMostDimensions] = {};
};

// One operand in a space. A stride is counted in elements, may be negative in principle, and is 0
// along a dimension that repeats the operand.
struct Operand {
  const void* data = nullptr;
  DType dtype = DType::float32;
  int64_t strides[kMostDimensions] = {};
};

// Whether element i of the space is element i of the operand.
LOSSCLI_HOST_DEVICE bool is_dense(const Operand& operand, const Space& space) {
  int64_t stride = 1;
  for (int d = 0; d < space.dimensions; ++d) {
    if (space.sizes[d] != 1 && operand.strides[d] != stride) return false;
    stride *= space.sizes[d];
  }
  return true;
}

// Whether all elements of the space share one element of the operand.
LOSSCLI_HOST_DEVICE bool is_scalar(const Operand& operand, const Space& space) {
  for (int d = 0; d < space.dimensions; ++d)
    if (space.sizes[d] != 1 && operand.strides[d] != 0) return false;
  return true;
}

// The length of the row that repeats over the whole space: i reads element i % length. 0 where the
// operand does not lie so; the size of the space where it is dense.
LOSSCLI_HOST_DEVICE int64_t row_length(const Operand& operand, const Space& space) {
  int64_t length = 1;
  int d = 0;
  for (; d < space.dimensions && (space.sizes[d] == 1 || operand.strides[d] == length); ++d)
    length *= space.sizes[d];
  for (; d < space.dimensions; ++d)
    if (operand.strides[d] != 0) return 0;
  return length;
}

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace losscli
