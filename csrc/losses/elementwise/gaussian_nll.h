// Negative log-likelihood of a normal distribution, as torch.nn.functional.gaussian_nll_loss:
//   0.5 (log(v) + (input - target)^2 / v), with v = max(var, eps),
// and with full 0.5 log(2 pi) besides. As in PyTorch the clamp has no part in the derivatives: var
// has below eps the gradient of eps. NaN stays NaN, and of a negative var all is NaN: on the CPU
// the public function then raises PyTorch's error.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct gaussian_nll {
  static constexpr Signature<3, 2> signature{{"input", "target", "var"},
                                             {{make_switch("full"), {"eps", 0.0}}}};
  static constexpr bool costly = true;

  Real constant;
  Real eps;

  explicit gaussian_nll(const double* values)
      : constant(values[0] != 0 ? Real(0.918938533204672741780) : Real(0)),
        eps(static_cast<Real>(values[1])) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[3]) const {
    const Real difference = x[0] - x[1], variance = clamped(x[2]);
    const Real square = difference * (difference / variance);
    return Real(0.5) * (logarithm(variance) + square) + constant;
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[3], Real incoming, Real (&out)[3]) const {
    const Real difference = x[0] - x[1], variance = clamped(x[2]);
    out[0] = incoming * (difference / variance);
    out[1] = -out[0];
    out[2] = of_variance(x[0], x[1], variance, Real(0.5) * incoming);
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[3], const Real (&v)[3],
                                           Real (&out)[3]) const {
    const Real difference = x[0] - x[1], variance = clamped(x[2]);
    const Real quotient = difference / variance;
    const Real along = quotient / variance;
    out[0] = (v[0] - v[1]) / variance - along * v[2];
    out[1] = -out[0];
    const Real curvature = (difference * quotient - Real(0.5)) / variance / variance;
    out[2] = curvature * v[2] - along * (v[0] - v[1]);
  }

 private:
  // (1 / v - (input - target)^2 / v^2) times a factor. Nothing overflows before the result does,
  // and the rounding of the difference, which the square would double, is made good.
  LOSSCLI_HOST_DEVICE float of_variance(float input, float target, float variance,
                                        float factor) const {
    const float difference = input - target, rest = rest_of(input, target, difference);
    const float quotient = difference / variance;
    const float one = 1.0f - finite_or_zero(2.0f * rest * quotient);
    return factor * (multiply_add(-difference, quotient, one) / variance);
  }

  // In the order in which autograd rounds.
  LOSSCLI_HOST_DEVICE double of_variance(double input, double target, double variance,
                                         double factor) const {
    const double difference = input - target;
    return multiply_add(-factor, difference * difference / variance / variance, factor / variance);
  }

  LOSSCLI_HOST_DEVICE Real clamped(Real variance) const {
    const Real least = variance < Real(0) ? kNotANumber<Real> : eps;
    return variance < eps ? least : variance;
  }
};

}  // namespace losscli
