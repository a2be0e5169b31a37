// Total variation distance of the distributions of two sets of logits: with p and q the softmax of
// input and target over the temperature, half the sum of |p - q|.
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

template <typename Real>
struct total_variation : RowLoss<2, 1> {
  static constexpr bool logits = true;
  // Of |p - q|, and of p and q times 1 less and 1 more than its sign.
  static constexpr int later_sums = 5;
  static constexpr int gradient_sums = 4;

  LOSSCLI_HOST_DEVICE explicit total_variation(const double* parameters)
      : inverse(static_cast<Real>(1 / parameters[0])) {}

  LOSSCLI_HOST_DEVICE void add_later(const RowElement<Real, 2>& e, Real (&to)[5]) const {
    const Real difference = e.p[0] - e.p[1], sign = sign_of(difference);
    to[0] += size_of(difference);
    // Products that are exact.
    for (int k = 0; k < 2; ++k) {
      to[1 + 2 * k] = multiply_add(1 - sign, e.p[k], to[1 + 2 * k]);
      to[2 + 2 * k] = multiply_add(1 + sign, e.p[k], to[2 + 2 * k]);
    }
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = totals.later[0] / 2;
    const Real scale = incoming[0] * inverse / 4;
    for (int k = 0; k < 4; ++k) result.factors[k] = (k < 2 ? scale : -scale) * totals.later[1 + k];
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    // The sign less the expected sign, without the difference of two numbers near 1.
    const Real sign = sign_of(e.p[0] - e.p[1]);
    for (int k = 0; k < 2; ++k)
      out[k] =
          e.p[k] * ((1 + sign) * finish.factors[2 * k] - (1 - sign) * finish.factors[2 * k + 1]);
  }

  Real inverse;
};

}  // namespace losscli
