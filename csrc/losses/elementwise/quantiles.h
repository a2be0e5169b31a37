// Quantile, or pinball, as quantile.h, with a quantile for each element: an operand, which has a
// gradient as well.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct quantiles {
  static constexpr Signature<3, 0> signature{{"input", "target", "quantile"}, {}};

  explicit quantiles(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[3]) const {
    const Real difference = x[0] - x[1];
    return difference * (difference > Real(0) ? Real(1) - x[2] : -x[2]);
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[3], Real incoming, Real (&out)[3]) const {
    const Real difference = x[0] - x[1];
    const Real below = Real(1) - x[2];
    const Real at_most = difference < Real(0) ? -x[2] : Real(0.5) - x[2];
    out[0] = incoming * (difference > Real(0) ? below : at_most);
    out[1] = -out[0];
    out[2] = -incoming * difference;
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&)[3], const Real (&v)[3],
                                           Real (&out)[3]) const {
    out[0] = -v[2];
    out[1] = v[2];
    out[2] = v[1] - v[0];
  }
};

}  // namespace losscli
