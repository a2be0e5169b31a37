// Minus the weight of a row's class times its element, which is a log-probability.
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

template <typename Real>
struct nll : RowLoss<1, 1> {
  static constexpr bool labelled = true;
  static constexpr bool mean_of_weights = true;
  static constexpr bool reads = false;

  LOSSCLI_HOST_DEVICE explicit nll(const double* parameters)
      : ignored(static_cast<int64_t>(parameters[0])) {}

  LOSSCLI_HOST_DEVICE bool ignores(int64_t label) const { return label == ignored; }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>& facts, const RowTotals<Real>&,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = -facts.weight * facts.picked;
    result.factors[0] = -incoming[0] * facts.weight;
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 1>& e, Real (&out)[1]) const {
    out[0] = select(e.label_mark != Real(0), finish.factors[0], Real(0));
  }

  int64_t ignored;
};

}  // namespace losscli
