// Hinge: max(margin - input * target, 0), for targets of -1 and 1.
// At the kink the gradient passes and NaN stays NaN, as in torch.clamp(min=0).
#pragma once

#include <cmath>

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct hinge {
  static constexpr Signature<2, 1> signature{{"input", "target"},
                                             {{{"margin", -kInfinity<double>}}}};

  // In two parts: near the kink the loss is what margin and product leave of each other, and a
  // margin rounded to float would be most of it.
  Real margin;
  Real margin_rest;

  explicit hinge(const double* values)
      : margin(static_cast<Real>(values[0])),
        margin_rest(std::isfinite(margin) ? static_cast<Real>(values[0] - margin) : Real(0)) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const { return at_least_zero(gap(x)); }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    // Chosen, not multiplied: where the loss is clamped, no upstream gradient passes, not even NaN.
    const Real slope = gap(x) >= Real(0) ? -incoming : Real(0);
    out[0] = slope * x[1];
    out[1] = slope * x[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real mixed = gap(x) >= Real(0) ? Real(-1) : Real(0);
    out[0] = mixed * v[1];
    out[1] = mixed * v[0];
  }

 private:
  LOSSCLI_HOST_DEVICE Real gap(const Real (&x)[2]) const {
    return multiply_add(-x[0], x[1], margin) + margin_rest;
  }
};

}  // namespace losscli
