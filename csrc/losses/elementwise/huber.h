// Huber (Annals of Mathematical Statistics, 1964): with d = input - target,
//   0.5 d^2                    where |d| < delta,
//   delta (|d| - 0.5 delta)    from |d| = delta on.
// The gradient is continuous, and NaN at NaN; the second derivative is 0 from |d| = delta on, as in
// torch.nn.functional.huber_loss, which refuses a delta of 0, too.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct huber {
  static constexpr Signature<2, 1> signature{{"input", "target"},
                                             {{{"delta", 0.0, kInfinity<double>, true}}}};

  Real delta;

  explicit huber(const double* values) : delta(static_cast<Real>(values[0])) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real distance = absolute(x[0] - x[1]);
    return distance < delta ? Real(0.5) * distance * distance
                            : delta * (distance - Real(0.5) * delta);
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real difference = x[0] - x[1];
    const Real below = difference <= -delta ? -delta : difference;
    out[0] = incoming * (difference >= delta ? delta : below);
    out[1] = -out[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real curvature = absolute(x[0] - x[1]) < delta ? Real(1) : Real(0);
    out[0] = curvature * (v[0] - v[1]);
    out[1] = -out[0];
  }
};

}  // namespace losscli
