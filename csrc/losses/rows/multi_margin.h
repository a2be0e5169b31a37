// The mean over all classes of w_y * max(0, margin - x_y + x_i)^p, but for the row's own class y,
// with p 1 or 2. As in PyTorch a difference of NaN is not above 0, and adds nothing.
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

template <typename Real>
struct multi_margin : RowLoss<1, 2> {
  static constexpr int gradient_sums = 1;
  static constexpr int sums = 2;  // of the powers, and of their derivatives
  static constexpr bool labelled = true;

  LOSSCLI_HOST_DEVICE explicit multi_margin(const double* parameters)
      : squares(static_cast<Real>(parameters[0] == 2)), margin(static_cast<Real>(parameters[1])) {}

  LOSSCLI_HOST_DEVICE Real beyond(const RowFacts<Real>& facts, const RowElement<Real, 1>& e) const {
    const Real found = (margin - facts.picked) + e.x[0];
    return select(e.label_mark != Real(0), Real(0), select(found > Real(0), found, Real(0)));
  }
  LOSSCLI_HOST_DEVICE Real slope(Real found) const {
    return squares != Real(0) ? found + found : Real(found > Real(0));
  }

  LOSSCLI_HOST_DEVICE void add(const RowFacts<Real>& facts, const RowElement<Real, 1>& e,
                               Real (&to)[2]) const {
    const Real found = beyond(facts, e);
    to[0] += squares != Real(0) ? found * found : found;
    to[1] += slope(found);
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>& facts,
                                             const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    const Real length = static_cast<Real>(facts.length);
    result.values[0] = facts.weight * totals.sums[0] / length;
    result.factors[0] = incoming[0] * facts.weight / length;
    result.factors[1] = -result.factors[0] * totals.sums[1];
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>& facts, const RowFinish<Real>& finish,
                                    const RowElement<Real, 1>& e, Real (&out)[1]) const {
    out[0] = select(e.label_mark != Real(0), finish.factors[1],
                    finish.factors[0] * slope(beyond(facts, e)));
  }

  Real squares, margin;
};

}  // namespace losscli
