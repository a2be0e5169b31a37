// Binary cross entropy of logits: max(input, 0) - input target + log(1 + e^-|input|), which is
// -(target log(p) + (1 - target) log(1 - p)) for p = sigmoid(input), without overflow. It is
// infinite for an infinite logit, where PyTorch's is NaN for a target of 1.
//
// The gradient is p - target. Of a target of 0 or 1 it keeps all its digits where p saturates. For
// a target between them it is a difference: where p is near the target, what the rounding of p
// leaves shows, as in any formula that knows p in Real only.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct binary_cross_entropy_with_logits {
  static constexpr Signature<2, 0> signature{{"input", "target"}, {}};
  static constexpr bool costly = true;

  explicit binary_cross_entropy_with_logits(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real linear = x[0] * ((x[0] > Real(0) ? Real(1) : Real(0)) - x[1]);
    return linear + softplus_tail(x[0]);
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    // From the nearer of 0 and 1.
    const Real tail = sigmoid(-absolute(x[0]));
    const Real slope = x[0] > Real(0) ? (Real(1) - x[1]) - tail : tail - x[1];
    out[0] = incoming * slope;
    out[1] = -incoming * x[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    out[0] = sigmoid(x[0]) * sigmoid(-x[0]) * v[0] - v[1];
    out[1] = -v[0];
  }
};

}  // namespace losscli
