// Sums in an order that compilers vectorise without leave to reorder, the same on every processor:
// each value goes into the lane of its position, and at the end the lanes are added pairwise.
#pragma once

#include <cstdint>
#include <type_traits>

#include "reduce/cpu/compensated.h"

namespace losscli::cpu {

// A few vectors' worth, so that their additions overlap.
constexpr int kLanes = 64;

// Sums of so many positions, without the errors of their additions.
template <typename Sum, int kCount = kLanes>
struct PlainLanes {
  alignas(64) Sum sum[kCount] = {};

  inline __attribute__((always_inline)) void add(int lane, Sum value) { sum[lane] += value; }

  void clear(int64_t from) {
    for (int64_t lane = from; lane < kCount; ++lane) sum[lane] = 0;
  }

  Compensated total() {
    for (int width = kCount / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
    return {sum[0], 0};
  }
};

// The same in double, with the errors.
template <int kCount = kLanes>
struct CompensatedLanes {
  alignas(64) double sum[kCount] = {};
  alignas(64) double rest[kCount] = {};

  inline __attribute__((always_inline)) void add(int lane, double value) {
    rest[lane] += two_sum(sum[lane], value);
  }

  void clear(int64_t from) {
    for (int64_t lane = from; lane < kCount; ++lane) sum[lane] = rest[lane] = 0;
  }

  Compensated total() {
    for (int width = kCount / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) {
        rest[lane] += two_sum(sum[lane], sum[lane + width]);
        rest[lane] += rest[lane + width];
      }
    return {sum[0], rest[0]};
  }
};

// Over a tile, which adds 16 values to each lane: in float for float.
template <typename Real>
using TileLanes =
    std::conditional_t<std::is_same_v<Real, double>, CompensatedLanes<>, PlainLanes<float>>;

// The sum of `count` values, in double for float, with errors for double.
template <int kCount, typename Real>
Compensated lane_sum(const Real* __restrict values, int64_t count) {
  std::conditional_t<std::is_same_v<Real, double>, CompensatedLanes<kCount>,
                     PlainLanes<double, kCount>>
      lanes;
  int64_t i = 0;
  for (; i + kCount <= count; i += kCount)
    for (int lane = 0; lane < kCount; ++lane) lanes.add(lane, values[i + lane]);
  for (int lane = 0; i + lane < count; ++lane) lanes.add(lane, values[i + lane]);
  return lanes.total();
}

}  // namespace losscli::cpu
