// The sum of groups of numbers: pairwise within a group, and from group to group in double lanes.
// Equal numbers, of which sums one by one in float would be wrong in the same direction, double
// without rounding.
#pragma once

#include <cstring>

#include "core/platform.h"

namespace losscli::cpu {

template <typename Real, int kCount>
using Numbers [[gnu::vector_size(kCount * sizeof(Real))]] = Real;

// Numbers combined pairwise until kLeft of them hold all. In vectors that are spelled out: of loops
// over halves compilers make scalars, or loops that wait for memory.
template <int kLeft, int kCount, typename Real, typename Combine>
LOSSCLI_HOST_DEVICE Numbers<Real, kLeft> folded(const Real* numbers, const Combine& combine) {
  constexpr int kHalf = kCount / 2;
  Numbers<Real, kHalf> first, second;
  std::memcpy(&first, numbers, sizeof first);
  std::memcpy(&second, numbers + kHalf, sizeof second);
  first = combine(first, second);
  if constexpr (kHalf == kLeft)
    return first;
  else
    return folded<kLeft, kHalf>(reinterpret_cast<const Real*>(&first), combine);
}

// The largest of numbers; that of NaN is any.
template <int kCount, typename Real>
LOSSCLI_HOST_DEVICE Real largest_of(const Real* numbers) {
  return folded<1, kCount>(numbers, [](auto a, auto b) LOSSCLI_LAMBDA { return b > a ? b : a; })[0];
}

template <int kLeft, int kCount, typename Real>
LOSSCLI_HOST_DEVICE Numbers<Real, kLeft> sums_of(const Real* numbers) {
  return folded<kLeft, kCount>(numbers, [](auto a, auto b) LOSSCLI_LAMBDA { return a + b; });
}

class GroupSum {
 public:
  template <int kCount, typename Real>
  LOSSCLI_HOST_DEVICE void add(const Real* numbers) {
    const auto sums = sums_of<kLanes, kCount>(numbers);
    lanes_ += __builtin_convertvector(sums, Lanes);
  }

  double total() const { return sums_of<1, kLanes>(reinterpret_cast<const double*>(&lanes_))[0]; }

 private:
  static constexpr int kLanes = 8;
  using Lanes = Numbers<double, kLanes>;
  Lanes lanes_ = {};
};

}  // namespace losscli::cpu
