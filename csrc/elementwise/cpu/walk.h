// An operand in memory, and its own way through a space.
#pragma once

#include <cstdint>

#include "core/operand.h"

namespace losscli::cpu {

// Only its conversions know an operand's dtype, so that the code that walks it is compiled once.
template <typename Value>
struct Source {
  const char* data = nullptr;
  int64_t item = 0;       // bytes of an element
  bool is_value = false;  // whether the elements are Value
  // Converts elements that lie side by side, and such as lie `stride` elements apart.
  void (*run)(const void* from, Value* to, int64_t count) = nullptr;
  void (*strided)(const void* from, int64_t stride, Value* to, int64_t count) = nullptr;

  const char* at(int64_t offset) const { return data + offset * item; }
};

// The dimensions that the operand walks as one are one, whatever the other operands do.
struct Walk {
  int32_t dimensions = 1;
  int64_t sizes[kMostDimensions] = {1};
  int64_t strides[kMostDimensions] = {};

  Walk() = default;

  Walk(const Operand& operand, const Space& space) {
    int d = -1;
    for (int s = 0; s < space.dimensions; ++s) {
      const int64_t size = space.sizes[s], stride = operand.strides[s];
      if (size == 1) continue;
      if (d >= 0 && stride == strides[d] * sizes[d]) {
        sizes[d] *= size;
      } else {
        ++d;
        sizes[d] = size;
        strides[d] = stride;
      }
    }
    dimensions = d < 0 ? 1 : d + 1;
  }

  // Whether element i of the space is element i of the operand.
  bool dense() const { return dimensions == 1 && (strides[0] == 1 || sizes[0] == 1); }

  // After so many elements the operand repeats; the size of the space where it does not.
  int64_t period() const {
    const int own = strides[dimensions - 1] == 0 ? dimensions - 1 : dimensions;
    int64_t product = 1;
    for (int d = 0; d < own; ++d) product *= sizes[d];
    return product;
  }
};

// A place in a walk that moves on row by row.
class Cursor {
 public:
  Cursor(const Walk& walk, int64_t first) : walk_(walk) {
    for (int d = 0; d < walk.dimensions; ++d) {
      const bool last = d == walk.dimensions - 1;
      index_[d] = last ? first : first % walk.sizes[d];
      if (!last) first /= walk.sizes[d];
      offset_ += index_[d] * walk.strides[d];
    }
  }

  // Where the operand lies, in elements from its data.
  int64_t offset() const { return offset_; }

  // How many elements are left of the row, this one included.
  int64_t left() const { return walk_.sizes[0] - index_[0]; }

  // Goes to the beginning of the next row.
  void next_row() {
    offset_ -= index_[0] * walk_.strides[0];
    index_[0] = 0;
    for (int d = 1; d < walk_.dimensions; ++d) {
      offset_ += walk_.strides[d];
      if (++index_[d] < walk_.sizes[d]) return;
      offset_ -= index_[d] * walk_.strides[d];
      index_[d] = 0;
    }
  }

 private:
  const Walk& walk_;
  int64_t index_[kMostDimensions];
  int64_t offset_ = 0;
};

}  // namespace losscli::cpu
