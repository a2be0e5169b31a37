// The log-probability of each row's token, and the entropy of the row: with p the softmax of the
// logits over the temperature, log(p_token) and minus the sum of p * log(p).
#pragma once

#include "losses/rows/functor.h"

namespace losscli {

template <typename Real>
struct token_log_probs : RowFunctor<1, 2> {
  static constexpr bool logits = true;
  static constexpr bool labelled = true;
  static constexpr DistanceSum distance{0, {1}};

  LOSSCLI_HOST_DEVICE explicit token_log_probs(const double* parameters)
      : inverse(static_cast<Real>(1 / parameters[0])) {}

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = -totals.surprise;
    result.values[1] = totals.logarithm[0] + totals.distance;
    result.factors[0] = incoming[0] * inverse;
    result.factors[1] = incoming[1] * inverse;
    result.factors[2] = totals.distance;
    result.factors[3] = totals.others;
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 1>& e, Real (&out)[1]) const {
    const Real of_token = select(e.label_mark != Real(0), finish.factors[3], -e.p[0]);
    const Real slope = e.p[0] * (e.d[0] - finish.factors[2]);
    out[0] = finish.factors[0] * of_token +
             finish.factors[1] * select(e.p[0] == Real(0), Real(0), slope);
  }

  Real inverse;
};

}  // namespace losscli
