// Hinge: max(margin - input * target, 0), for targets of -1 and 1.
// At the kink the gradient passes and NaN stays NaN, as in torch.clamp(min=0).
#pragma once

#include "functor.h"

namespace losscli {

template <typename Real>
struct hinge {
  static constexpr std::array<Parameter, 1> parameters{
      {{"margin", 1.0, -std::numeric_limits<double>::infinity()}}};

  Real margin;

  explicit hinge(const double* values) : margin(static_cast<Real>(values[0])) {}

  LOSSCLI_HOST_DEVICE Real value(Real input, Real target) const {
    const Real gap = multiply_add(-input, target, margin);
    return gap < Real(0) ? Real(0) : gap;
  }

  LOSSCLI_HOST_DEVICE Gradient<Real> gradient(Real input, Real target) const {
    const Real slope = slope_of_gap(input, target);
    return {slope * target, slope * input};
  }

  LOSSCLI_HOST_DEVICE Hessian<Real> hessian(Real input, Real target) const {
    return {Real(0), slope_of_gap(input, target), Real(0)};
  }

 private:
  LOSSCLI_HOST_DEVICE Real slope_of_gap(Real input, Real target) const {
    return multiply_add(-input, target, margin) >= Real(0) ? Real(-1) : Real(0);
  }
};

}  // namespace losscli
