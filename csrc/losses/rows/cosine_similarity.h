// Losses of the cosine c of the angle between two rows.
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

// What they have in common: the product of the rows and their squares, and gradients that are a
// factor times the other row and one times the row itself.
template <typename Real>
struct OfCosine : RowLoss<2, 1> {
  static constexpr int sums = 3;

  LOSSCLI_HOST_DEVICE void add(const RowFacts<Real>&, const RowElement<Real, 2>& e,
                               Real (&to)[3]) const {
    to[0] = multiply_add(e.x[0], e.x[1], to[0]);
    to[1] = multiply_add(e.x[0], e.x[0], to[1]);
    to[2] = multiply_add(e.x[1], e.x[1], to[2]);
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    out[0] = finish.factors[0] * e.x[1] + finish.factors[1] * e.x[0];
    out[1] = finish.factors[0] * e.x[0] + finish.factors[2] * e.x[1];
  }
};

// 1 - c, where norms are at least eps.
template <typename Real>
struct cosine_similarity : OfCosine<Real> {
  LOSSCLI_HOST_DEVICE explicit cosine_similarity(const double* parameters)
      : eps(static_cast<Real>(parameters[0])) {}

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

  Real eps;
};

// 1 - c where the target is 1, and max(0, c - margin) where it is -1. PyTorch adds 1e-12 to the
// squares of the norms.
template <typename Real>
struct cosine_embedding : OfCosine<Real> {
  static constexpr bool targeted = true;

  LOSSCLI_HOST_DEVICE explicit cosine_embedding(const double* parameters)
      : margin(static_cast<Real>(parameters[0])) {}

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>& facts,
                                             const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    const Real first = totals.sums[1] + Real(1e-12), second = totals.sums[2] + Real(1e-12);
    const Real inverse = Real(1) / (root(first) * root(second));
    const Real cosine = totals.sums[0] * inverse;
    RowFinish<Real> result;
    Real slope = 0;
    if (facts.target == Real(1)) {
      result.values[0] = Real(1) - cosine;
      slope = -incoming[0];
    } else if (facts.target == Real(-1)) {
      const Real beyond = cosine - margin;
      result.values[0] = beyond < Real(0) ? Real(0) : beyond;
      slope = beyond < Real(0) ? Real(0) : incoming[0];
    }
    result.factors[0] = slope * inverse;
    result.factors[1] = -slope * cosine / first;
    result.factors[2] = -slope * cosine / second;
    return result;
  }

  Real margin;
};

}  // namespace losscli
