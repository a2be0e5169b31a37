// Half of the sum of |softmax(input) - softmax(target)|.
#pragma once

#include "rowfunctors/row.h"

namespace losscli::rowfunctors {

template <typename Real>
struct total_variation {
  static constexpr int kOperands = 2, kSums = 3, kValues = 1;
  static constexpr bool kTokens = false;

  LOSSCLI_HOST_DEVICE explicit total_variation(const Call&) {}
  LOSSCLI_HOST_DEVICE bool needs_sums() const { return true; }
  LOSSCLI_HOST_DEVICE void add(const Real*, const Real* p, Real* sums) const {
    const Real half = half_sign(p);
    sums[0] += half * (p[0] - p[1]);
    sums[1] += half * p[0];
    sums[2] += half * p[1];
  }
  LOSSCLI_HOST_DEVICE void values(const Real* sums, Real, Real* values) const {
    values[0] = sums[0];
  }
  LOSSCLI_HOST_DEVICE void gradients(const Real*, const Real* p, const Real* sums, bool,
                                     const Real* incoming, Real* gradients) const {
    const Real half = half_sign(p);
    gradients[0] = incoming[0] * (p[0] * (half - sums[1]));
    gradients[1] = incoming[0] * (p[1] * (sums[2] - half));
  }

 private:
  // 0 where both are the same, as PyTorch's derivative of |x|; NaN where one is.
  LOSSCLI_HOST_DEVICE static Real half_sign(const Real* p) {
    const Real difference = p[0] - p[1];
    const Real negative = difference < Real(0) ? Real(-0.5) : difference;
    return difference > Real(0) ? Real(0.5) : negative;
  }
};

}  // namespace losscli::rowfunctors
