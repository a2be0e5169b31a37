// Sums in an order that compilers vectorise without leave to reorder, the same on every processor:
// each value goes into the lane of its position, and at the end the lanes are added pairwise.
#pragma once

#include <cstdint>
#include <type_traits>

#include "reduce/cpu/compensated.h"

namespace losscli::cpu {

// Sums of so many positions, without the errors of their additions.
template <typename Sum, int kCount>
struct PlainLanes {
  alignas(64) Sum sum[kCount] = {};

  inline __attribute__((always_inline)) void add(int64_t lane, Sum value) { sum[lane] += value; }

  void clear(int64_t from) {
    for (int64_t lane = from; lane < kCount; ++lane) sum[lane] = 0;
  }

  Compensated at(int64_t lane) const { return {sum[lane], 0}; }

  Compensated total() {
    for (int width = kCount / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
    return at(0);
  }
};

// The same in double, with the errors.
template <int kCount>
struct CompensatedLanes {
  alignas(64) double sum[kCount] = {};
  alignas(64) double rest[kCount] = {};

  inline __attribute__((always_inline)) void add(int64_t lane, double value) {
    rest[lane] += two_sum(sum[lane], value);
  }

  void clear(int64_t from) {
    for (int64_t lane = from; lane < kCount; ++lane) sum[lane] = rest[lane] = 0;
  }

  Compensated at(int64_t lane) const { return {sum[lane], rest[lane]}; }

  Compensated total() {
    for (int width = kCount / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) {
        rest[lane] += two_sum(sum[lane], sum[lane + width]);
        rest[lane] += rest[lane + width];
      }
    return at(0);
  }
};

// Lanes for sums of Real in `Sum`, or of double with their errors.
template <typename Real, int kCount, typename Sum = double>
using LaneSums = std::conditional_t<std::is_same_v<Real, double>, CompensatedLanes<kCount>,
                                    PlainLanes<Sum, kCount>>;

// Adds neighbouring values to as many lanes.
template <typename Sums, typename Number>
inline __attribute__((always_inline)) void add_lanes(Sums& lanes, const Number* __restrict values,
                                                     int64_t count) {
  for (int64_t lane = 0; lane < count; ++lane) lanes.add(lane, values[lane]);
}

// The sum of `count` values, in double for float, with errors for double.
template <int kCount, typename Real>
Compensated lane_sum(const Real* __restrict values, int64_t count) {
  LaneSums<Real, kCount> lanes;
  int64_t i = 0;
  for (; i + kCount <= count; i += kCount) add_lanes(lanes, values + i, kCount);
  add_lanes(lanes, values + i, count - i);
  return lanes.total();
}

}  // namespace losscli::cpu
