// Kullback-Leibler divergences and cross entropy of the distributions of two sets of logits: p and
// q are the softmax of input and target over the temperature.
//
// Where a row is spread over several calls, of some of the classes each, a row has more values: of
// both operands the largest logit, before the temperature divides it, and the logarithm of the sum
// of exponentials beside that one's. These have no gradient here (csrc/parts).
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

// With w the distribution of operand `own` and v that of the other, the sum of w * log(w / v), or
// without `entropy`, which is that of w, minus the sum of w * log(v).
template <typename Real, int own, bool entropy>
struct Divergence : RowLoss<2, 1> {
  static constexpr int other = 1 - own;
  static constexpr bool logits = true;
  static constexpr DistanceSum distance{own, {own ? 1 : -entropy, own ? -entropy : 1}};

  LOSSCLI_HOST_DEVICE explicit Divergence(const double* parameters)
      : inverse(static_cast<Real>(1 / parameters[0])) {}

  // Of the other operand, less that of the own one, whose part is the entropy's.
  LOSSCLI_HOST_DEVICE static Real beyond(const Real* numbers) {
    return entropy ? numbers[other] - numbers[own] : numbers[other];
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = totals.distance + beyond(totals.logarithm);
    for (int k = 0; k < 2; ++k) {
      result.values[1 + 2 * k] = finite_top(totals.tops[k]);
      result.values[2 + 2 * k] = totals.logarithm[k];
    }
    result.factors[0] = incoming[0] * inverse;
    result.factors[1] = totals.distance;
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    const Real excess = beyond(e.d) - finish.factors[1];
    out[other] = finish.factors[0] * (e.p[other] - e.p[own]);
    out[own] = finish.factors[0] * weighed(e.p[own], excess);
  }

  Real inverse;
};

// Of the input's distribution from the target's: the sum of q * log(q / p).
template <typename Real>
using kl_divergence = Divergence<Real, 1, true>;

// Of the target's distribution from the input's: the sum of p * log(p / q).
template <typename Real>
using reverse_kl_divergence = Divergence<Real, 0, true>;

// Minus the sum of q * log(p).
template <typename Real>
using soft_cross_entropy = Divergence<Real, 1, false>;

}  // namespace losscli
