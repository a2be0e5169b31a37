// Hinge: max(margin - input * target, 0), for targets of -1 and 1.
// At the kink the gradient passes and NaN stays NaN, as in torch.clamp(min=0).
#pragma once

#include <cmath>
#include <limits>

#include "functor.h"

namespace losscli {

template <typename Real>
struct hinge {
  static constexpr std::array<Parameter, 1> parameters{
      {{"margin", -std::numeric_limits<double>::infinity()}}};

  // In two parts: near the kink the loss is what margin and product leave of each other, and a
  // margin rounded to float would be most of it.
  Real margin;
  Real margin_rest;

  explicit hinge(const double* values)
      : margin(static_cast<Real>(values[0])),
        margin_rest(std::isfinite(margin) ? static_cast<Real>(values[0] - margin) : Real(0)) {}

  LOSSCLI_HOST_DEVICE Real value(Real input, Real target) const {
    return at_least_zero(gap(input, target));
  }

  LOSSCLI_HOST_DEVICE Gradient<Real> gradient(Real input, Real target, Real incoming) const {
    // Chosen, not multiplied: where the loss is clamped, no incoming gradient passes, not even NaN.
    const Real slope = gap(input, target) >= Real(0) ? -incoming : Real(0);
    return {slope * target, slope * input};
  }

  LOSSCLI_HOST_DEVICE Hessian<Real> hessian(Real input, Real target) const {
    return {Real(0), gap(input, target) >= Real(0) ? Real(-1) : Real(0), Real(0)};
  }

 private:
  LOSSCLI_HOST_DEVICE Real gap(Real input, Real target) const {
    return multiply_add(-input, target, margin) + margin_rest;
  }
};

}  // namespace losscli
