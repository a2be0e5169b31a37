// beta * KL(q || m) + (1 - beta) * KL(p || m) with m = beta * q + (1 - beta) * p, p =
// softmax(input) and q = softmax(target).
#pragma once

#include "rowfunctors/row.h"

namespace losscli::rowfunctors {

template <typename Real>
struct js_divergence {
  static constexpr int kOperands = 2, kSums = 2, kValues = 1;
  static constexpr bool kTokens = false;
  Real share[2];  // of the input and of the target in the mixture

  LOSSCLI_HOST_DEVICE explicit js_divergence(const Call& call)
      : share{Real(1 - call.parameters[0]), Real(call.parameters[0])} {}
  LOSSCLI_HOST_DEVICE bool needs_sums() const { return true; }
  LOSSCLI_HOST_DEVICE void add(const Real* log_p, const Real* p, Real* sums) const {
    const Real log_m = log_of_mixture(p);
    for (int k = 0; k < 2; ++k) sums[k] += term(k, log_p[k], p[k], log_m, Real(0));
  }
  LOSSCLI_HOST_DEVICE void values(const Real* sums, Real, Real* values) const {
    values[0] = sums[0] + sums[1];
  }
  LOSSCLI_HOST_DEVICE void gradients(const Real* log_p, const Real* p, const Real* sums, bool,
                                     const Real* incoming, Real* gradients) const {
    const Real log_m = log_of_mixture(p);
    for (int k = 0; k < 2; ++k)
      gradients[k] = incoming[0] * term(k, log_p[k], p[k], log_m, sums[k]);
  }

 private:
  LOSSCLI_HOST_DEVICE Real log_of_mixture(const Real* p) const {
    return logarithm(share[0] * p[0] + share[1] * p[1]);
  }
  // One class of one of the two divergences, less the sum of all for the gradient.
  LOSSCLI_HOST_DEVICE Real term(int k, Real log_p, Real p, Real log_m, Real sum) const {
    const Real found = p * (share[k] * (log_p - log_m) - sum);
    return p == Real(0) ? Real(0) : found;
  }
};

}  // namespace losscli::rowfunctors
