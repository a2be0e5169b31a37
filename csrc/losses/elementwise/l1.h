// Absolute error: |input - target|.
// The gradient is the sign of the difference, 0 at 0 and at NaN, as autograd of torch.abs has it.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct l1 {
  static constexpr Signature<2, 0> signature{{"input", "target"}, {}};

  explicit l1(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const { return absolute(x[0] - x[1]); }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real difference = x[0] - x[1];
    const Real sign = difference > Real(0) ? Real(1) : difference < Real(0) ? Real(-1) : Real(0);
    out[0] = incoming * sign;
    out[1] = -out[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&)[2], const Real (&)[2],
                                           Real (&out)[2]) const {
    out[0] = out[1] = Real(0);
  }
};

}  // namespace losscli
