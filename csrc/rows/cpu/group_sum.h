// The sum of groups of numbers: pairwise within a group, and from group to group in double lanes.
// Equal numbers, of which sums one by one in float would be wrong in the same direction, double
// without rounding.
#pragma once

#include <cstdint>

#include "core/platform.h"

namespace losscli::cpu {

class GroupSum {
 public:
  // Overwrites the numbers.
  template <int kCount, typename Real>
  LOSSCLI_HOST_DEVICE void add(Real* __restrict numbers) {
    for (int width = kCount / 2; width >= kLanes; width /= 2)
      for (int i = 0; i < width; ++i) numbers[i] += numbers[i + width];
    for (int i = 0; i < kLanes; ++i) lanes_[i] += static_cast<double>(numbers[i]);
  }

  double total() const {
    double sum[kLanes];
    for (int i = 0; i < kLanes; ++i) sum[i] = lanes_[i];
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) sum[i] += sum[i + width];
    return sum[0];
  }

 private:
  static constexpr int kLanes = 8;
  alignas(64) double lanes_[kLanes] = {};
};

}  // namespace losscli::cpu
