// Sums in an order that compilers vectorise without leave to reorder, the same on every processor.
#pragma once

#include <cstdint>

namespace losscli::cpu {

// A few vectors' worth, so that their additions overlap.
constexpr int kLanes = 64;

// Adds the lanes pairwise, in place.
template <typename Sum>
Sum lane_total(Sum (&lanes)[kLanes]) {
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

// Adds every 64th value into its own lane, then the lanes.
template <typename Sum, typename Real>
Sum lane_sum(const Real* __restrict values, int64_t count) {
  Sum lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  for (int lane = 0; i + lane < count; ++lane) lanes[lane] += values[i + lane];
  return lane_total(lanes);
}

}  // namespace losscli::cpu
