// An estimate of a Kullback-Leibler divergence from a token of the policy (Schulman, Approximating
// KL divergence, 2020), with d = reference_log_probs - log_probs:
//   k1  -d,      k2  0.5 d^2,      k3  e^d - 1 - d.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct kl_estimate {
  static constexpr Signature<2, 1> signature{{"log_probs", "reference_log_probs"},
                                             {{{"estimator", 1.0, 3.0}}}};
  static constexpr bool costly = true;

  // 1 or 0. Two copies: GCC makes a branch of a condition that value and derivatives share, and
  // then vectorises no loop.
  Real is_first, is_third, slope_is_first, slope_is_third;

  explicit kl_estimate(const double* values)
      : is_first(values[0] == 1),
        is_third(values[0] == 3),
        slope_is_first(values[0] == 1),
        slope_is_third(values[0] == 3) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real d = x[1] - x[0], beyond_one = exponential_minus_one(d);
    const Real third = (beyond_one - d) + finite_or_zero(beyond_one * lost(x[1], x[0], d));
    const Real other = is_first > Real(0) ? -d : Real(0.5) * d * d;
    return is_third > Real(0) ? third : other;
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real d = x[1] - x[0], beyond_one = exponential_minus_one(d);
    const Real rest = lost(x[1], x[0], d), other = slope_is_first > Real(0) ? Real(-1) : d;
    const Real third = beyond_one + finite_or_zero(beyond_one * rest + rest);
    out[1] = incoming * (slope_is_third > Real(0) ? third : other);
    out[0] = -out[1];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real other = slope_is_first > Real(0) ? Real(0) : Real(1);
    const Real curvature = slope_is_third > Real(0) ? exponential(x[1] - x[0]) : other;
    out[1] = curvature * (v[1] - v[0]);
    out[0] = -out[1];
  }
};

}  // namespace losscli
