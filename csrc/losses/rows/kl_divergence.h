// Kullback-Leibler divergence of the input's distribution from the target's: with p and q the
// softmax of input and target over the temperature, the sum of q * log(q / p).
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

template <typename Real>
struct kl_divergence : RowLoss<2, 1> {
  static constexpr bool logits = true;
  static constexpr DistanceSum distance{1, {1, -1}};

  LOSSCLI_HOST_DEVICE explicit kl_divergence(const double* parameters)
      : inverse(static_cast<Real>(1 / parameters[0])) {}

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = totals.distance + (totals.logarithm[0] - totals.logarithm[1]);
    result.factors[0] = incoming[0] * inverse;
    result.factors[1] = totals.distance;
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    const Real beyond = (e.d[0] - e.d[1]) - finish.factors[1];
    out[0] = finish.factors[0] * (e.p[0] - e.p[1]);
    out[1] = finish.factors[0] * weighed(e.p[1], beyond);
  }

  Real inverse;
};

}  // namespace losscli
