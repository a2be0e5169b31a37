// One minus the cosine of the angle between two rows, whose norms are at least eps.
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

template <typename Real>
struct cosine_similarity : RowLoss<2, 1> {
  static constexpr int sums = 3;

  LOSSCLI_HOST_DEVICE explicit cosine_similarity(const double* parameters)
      : eps(static_cast<Real>(parameters[0])) {}

  LOSSCLI_HOST_DEVICE void add(const RowFacts<Real>&, const RowElement<Real, 2>& e,
                               Real (&out)[3]) const {
    out[0] = e.x[0] * e.x[1];
    out[1] = e.x[0] * e.x[0];
    out[2] = e.x[1] * e.x[1];
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    const Real norms[] = {root(totals.sums[1]), root(totals.sums[2])};
    const Real first = norms[0] < eps ? eps : norms[0], second = norms[1] < eps ? eps : norms[1];
    const Real cosine = totals.sums[0] / first / second;
    RowFinish<Real> result;
    result.values[0] = Real(1) - cosine;
    // What multiplies the other row, and what the row itself: nothing where its norm is eps.
    result.factors[0] = -incoming[0] / first / second;
    result.factors[1] = norms[0] < eps ? Real(0) : incoming[0] * cosine / first / first;
    result.factors[2] = norms[1] < eps ? Real(0) : incoming[0] * cosine / second / second;
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    out[0] = finish.factors[0] * e.x[1] + finish.factors[1] * e.x[0];
    out[1] = finish.factors[0] * e.x[0] + finish.factors[2] * e.x[1];
  }

  Real eps;
};

}  // namespace losscli
