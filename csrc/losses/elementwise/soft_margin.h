// Soft margin, or logistic loss: log(1 + e^(-target input)), for targets of -1 and 1.
// Without overflow: PyTorch's is infinite where e^(-target input) is.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct soft_margin {
  static constexpr Signature<2, 0> signature{{"input", "target"}, {}};
  static constexpr bool costly = true;

  explicit soft_margin(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const { return softplus(-x[1] * x[0]); }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    // Of the losses' gradients this has the most roundings.
    const Real slope = -incoming * careful_sigmoid(-x[1] * x[0]);
    out[0] = slope * x[1];
    out[1] = slope * x[0];
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real product = x[1] * x[0];
    const Real miss = sigmoid(-product);
    const Real curvature = miss * sigmoid(product);
    const Real along = curvature * (x[1] * v[0] + x[0] * v[1]);
    out[0] = x[1] * along - miss * v[1];
    out[1] = x[0] * along - miss * v[0];
  }
};

}  // namespace losscli
