// The sum of groups of numbers: pairwise within a group, and from group to group in double lanes.
// Equal numbers, of which sums one by one in float would be wrong in the same direction, double
// without rounding.
#pragma once

#include "core/platform.h"
#include "reduce/cpu/lanes.h"

namespace losscli::cpu {

class GroupSum {
 public:
  // Overwrites the numbers.
  template <int kCount, typename Real>
  LOSSCLI_HOST_DEVICE void add(Real* __restrict numbers) {
    for (int width = kCount / 2; width >= kLanes; width /= 2)
      for (int i = 0; i < width; ++i) numbers[i] += numbers[i + width];
    add_lanes(lanes_, numbers, kLanes);
  }

  double total() const { return PlainLanes<double, kLanes>(lanes_).total().sum; }

 private:
  static constexpr int kLanes = 8;
  PlainLanes<double, kLanes> lanes_;
};

}  // namespace losscli::cpu
