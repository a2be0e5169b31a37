// Smooth L1 (Girshick, Fast R-CNN, 2015): with d = input - target,
//   0.5 d^2 / beta   where |d| < beta,
//   |d| - 0.5 beta   from |d| = beta on.
// beta = 0 is the L1 loss, with gradient 0 at d = 0, as in PyTorch.
#pragma once

#include <algorithm>
#include <limits>

#include "functor.h"

namespace losscli {

template <typename Real>
struct smooth_l1 {
  static constexpr std::array<Parameter, 1> parameters{{{"beta", 0.0}}};

  Real beta;
  Real reciprocal;

  // The reciprocal of a subnormal beta is out of range.
  explicit smooth_l1(const double* values)
      : beta(static_cast<Real>(values[0])),
        reciprocal(std::min(Real(1) / beta, std::numeric_limits<Real>::max())) {}

  LOSSCLI_HOST_DEVICE Real value(Real input, Real target) const {
    const Real distance = absolute(input - target);
    // The quotient first: it is below 1, so the product does not overflow.
    return distance < beta ? Real(0.5) * distance * (distance * reciprocal)
                           : distance - Real(0.5) * beta;
  }

  LOSSCLI_HOST_DEVICE Gradient<Real> gradient(Real input, Real target, Real incoming) const {
    const Real difference = input - target;
    // PyTorch's gradient at NaN: NaN, but 0 for the L1 loss, whose gradient is a sign.
    const Real unordered = beta > Real(0) ? difference : Real(0);
    const Real linear = difference > Real(0)   ? Real(1)
                        : difference < Real(0) ? Real(-1)
                                               : unordered;
    const Real slope = absolute(difference) < beta ? difference * reciprocal : linear;
    return {incoming * slope, -(incoming * slope)};
  }

  LOSSCLI_HOST_DEVICE Hessian<Real> hessian(Real input, Real target) const {
    const Real curvature = absolute(input - target) < beta ? reciprocal : Real(0);
    return {curvature, -curvature, curvature};
  }
};

}  // namespace losscli
