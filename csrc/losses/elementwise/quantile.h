// Quantile, or pinball (Koenker and Bassett, Econometrica, 1978): with d = target - input,
//   quantile d          where d >= 0,
//   (quantile - 1) d    below.
// The quantile is between 0 and 1. At the kink the gradient is the mean of both sides', and at NaN
// their sum, as autograd has it for torch.maximum(quantile * d, (quantile - 1) * d); with quantile
// 0.5 both are 0, as for the L1 loss, of which this is then half.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct quantile {
  static constexpr Signature<2, 1> signature{{"input", "target"}, {{{"quantile", 0.0, 1.0, true}}}};

  Real above;   // slopes: of a target above the input,
  Real below;   // and below
  Real middle;  // at the kink, and at NaN

  explicit quantile(const double* values)
      : above(static_cast<Real>(-values[0])),
        below(static_cast<Real>(1 - values[0])),
        middle(static_cast<Real>(0.5 - values[0])) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real difference = x[0] - x[1];
    return difference * (difference > Real(0) ? below : above);
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real difference = x[0] - x[1];
    const Real at_most = difference < Real(0) ? above : middle;
    out[0] = incoming * (difference > Real(0) ? below : at_most);
    out[1] = -out[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&)[2], const Real (&)[2],
                                           Real (&out)[2]) const {
    out[0] = out[1] = Real(0);
  }
};

}  // namespace losscli
