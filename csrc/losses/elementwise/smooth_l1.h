// Smooth L1 (Girshick, Fast R-CNN, 2015): with d = input - target,
//   0.5 d^2 / beta   where |d| < beta,
//   |d| - 0.5 beta   from |d| = beta on.
// beta = 0 is the L1 loss, with gradient 0 at d = 0, as in PyTorch.
#pragma once

#include <algorithm>
#include <limits>

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct smooth_l1 {
  static constexpr Signature<2, 1> signature{{"input", "target"}, {{{"beta", 0.0}}}};

  Real beta;
  Real reciprocal;
  Real half_reciprocal;

  // The reciprocal of a subnormal beta is out of range.
  explicit smooth_l1(const double* values)
      : beta(static_cast<Real>(values[0])),
        reciprocal(std::min(Real(1) / beta, std::numeric_limits<Real>::max())),
        half_reciprocal(Real(0.5) * reciprocal) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real distance = absolute(x[0] - x[1]);
    // The quotient first: it is below 1/2, so the product does not overflow.
    return distance < beta ? distance * (distance * half_reciprocal) : distance - Real(0.5) * beta;
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real difference = x[0] - x[1];
    // PyTorch's gradient at NaN: NaN, but 0 for the L1 loss, whose gradient is a sign.
    const Real unordered = beta > Real(0) ? difference : Real(0);
    const Real linear = difference > Real(0)   ? Real(1)
                        : difference < Real(0) ? Real(-1)
                                               : unordered;
    const Real slope = absolute(difference) < beta ? difference * reciprocal : linear;
    out[0] = incoming * slope;
    out[1] = -out[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real curvature = absolute(x[0] - x[1]) < beta ? reciprocal : Real(0);
    out[0] = curvature * (v[0] - v[1]);
    out[1] = -out[0];
  }
};

}  // namespace losscli
