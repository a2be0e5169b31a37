// Total variation distance of the distributions of two sets of logits: with p and q the softmax of
// input and target over the temperature, half the sum of |p - q|.
#pragma once

#include "losses/rows/functor.h"

namespace losscli {

template <typename Real>
struct total_variation : RowFunctor<2, 1> {
  static constexpr bool logits = true;
  static constexpr int later_sums = 3;  // of |p - q|, and of its sign times p and q

  LOSSCLI_HOST_DEVICE explicit total_variation(const double* parameters)
      : inverse(static_cast<Real>(1 / parameters[0])) {}

  LOSSCLI_HOST_DEVICE void add_later(const RowElement<Real, 2>& e, Real (&out)[3]) const {
    const Real difference = e.p[0] - e.p[1], sign = sign_of(difference);
    out[0] = size_of(difference);
    out[1] = sign * e.p[0];
    out[2] = sign * e.p[1];
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = totals.later[0] / 2;
    result.factors[0] = incoming[0] * inverse / 2;
    result.factors[1] = totals.later[1];
    result.factors[2] = totals.later[2];
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    const Real sign = sign_of(e.p[0] - e.p[1]);
    out[0] = finish.factors[0] * e.p[0] * (sign - finish.factors[1]);
    out[1] = finish.factors[0] * e.p[1] * (finish.factors[2] - sign);
  }

  Real inverse;
};

}  // namespace losscli
