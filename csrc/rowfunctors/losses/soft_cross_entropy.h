// The cross entropy of softmax(input) with the probabilities softmax(target).
#pragma once

#include "rowfunctors/row.h"

namespace losscli::rowfunctors {

template <typename Real>
struct soft_cross_entropy {
  static constexpr int kOperands = 2, kSums = 1, kValues = 1;
  static constexpr bool kTokens = false;

  LOSSCLI_HOST_DEVICE explicit soft_cross_entropy(const Call&) {}
  LOSSCLI_HOST_DEVICE bool needs_sums() const { return true; }
  LOSSCLI_HOST_DEVICE void add(const Real* log_p, const Real* p, Real* sums) const {
    const Real term = p[1] * log_p[0];
    sums[0] -= p[1] == Real(0) ? Real(0) : term;
  }
  LOSSCLI_HOST_DEVICE void values(const Real* sums, Real, Real* values) const {
    values[0] = sums[0];
  }
  LOSSCLI_HOST_DEVICE void gradients(const Real* log_p, const Real* p, const Real* sums, bool,
                                     const Real* incoming, Real* gradients) const {
    gradients[0] = incoming[0] * (p[0] - p[1]);
    const Real of_target = p[1] * (-log_p[0] - sums[0]);
    gradients[1] = incoming[0] * (p[1] == Real(0) ? Real(0) : of_target);
  }
};

}  // namespace losscli::rowfunctors
