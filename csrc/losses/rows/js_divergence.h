// Generalised Jensen-Shannon divergence of the distributions of two sets of logits: with q and p
// the softmax of input and target over the temperature and m = beta * p + (1 - beta) * q,
//   beta * sum of p * log(p / m) + (1 - beta) * sum of q * log(q / m).
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

template <typename Real>
struct js_divergence : RowLoss<2, 2> {
  static constexpr bool logits = true;
  static constexpr int later_sums = 2;  // of the divergences of q and p from m

  LOSSCLI_HOST_DEVICE explicit js_divergence(const double* parameters)
      : inverse(static_cast<Real>(1 / parameters[0])),
        of_target(static_cast<Real>(parameters[1])),
        of_input(static_cast<Real>(1 - parameters[1])) {}

  // By which a subnormal probability becomes a normal number, of which m keeps the digits.
  static constexpr Real kUp = Real(0x1p64);

  // log(a / m), where the two are near as that of 1 + (a - m) / m, which keeps its digits.
  LOSSCLI_HOST_DEVICE void logarithms(const RowElement<Real, 2>& e, Real (&logs)[2]) const {
    const Real q = e.p[0] * kUp, p = e.p[1] * kUp, m = of_target * p + of_input * q;
    const Real reciprocal = quotient(Real(1), m), gap = (q - p) * reciprocal;
    logs[0] = logarithm_of_quotient(q * reciprocal, of_target * gap);
    logs[1] = logarithm_of_quotient(p * reciprocal, -of_input * gap);
  }

  LOSSCLI_HOST_DEVICE void add_later(const RowElement<Real, 2>& e, Real (&to)[2]) const {
    Real logs[2];
    logarithms(e, logs);
    for (int k = 0; k < 2; ++k)
      to[k] = select(e.p[k] == Real(0), to[k], multiply_add(e.p[k], logs[k], to[k]));
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = of_input * totals.later[0] + of_target * totals.later[1];
    result.factors[0] = incoming[0] * inverse * of_input;
    result.factors[1] = incoming[0] * inverse * of_target;
    result.factors[2] = totals.later[0];
    result.factors[3] = totals.later[1];
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    Real logs[2];
    logarithms(e, logs);
    for (int k = 0; k < 2; ++k) {
      const Real slope = e.p[k] * (logs[k] - finish.factors[2 + k]);
      out[k] = finish.factors[k] * select(e.p[k] == Real(0), Real(0), slope);
    }
  }

  Real inverse, of_target, of_input;
};

}  // namespace losscli
