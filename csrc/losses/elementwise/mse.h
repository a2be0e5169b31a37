// Squared error: (input - target)^2.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct mse {
  static constexpr Signature<2, 0> signature{{"input", "target"}, {}};

  explicit mse(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real difference = x[0] - x[1];
    return difference * difference;
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    // Doubled last: the difference alone may be in range when twice of it is not.
    const Real half = incoming * (x[0] - x[1]);
    out[0] = half + half;
    out[1] = -out[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    out[0] = Real(2) * (v[0] - v[1]);
    out[1] = -out[0];
  }
};

}  // namespace losscli
