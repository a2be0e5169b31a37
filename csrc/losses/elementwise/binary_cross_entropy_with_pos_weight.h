// Binary cross entropy of logits whose positive targets have a weight:
//   pos_weight target softplus(-input) + (1 - target) softplus(input),
// where softplus(x) = log(1 + e^x). Nothing cancels in the loss for targets between 0 and 1; in its
// gradients for input and target the two terms have opposite signs.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct binary_cross_entropy_with_pos_weight {
  static constexpr Signature<3, 0> signature{{"input", "target", "pos_weight"}, {}};
  static constexpr bool costly = true;

  explicit binary_cross_entropy_with_pos_weight(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[3]) const {
    const Losses of(x[0]);
    return x[2] * (x[1] * of.miss) + (Real(1) - x[1]) * of.hit;
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[3], Real incoming, Real (&out)[3]) const {
    const Losses of(x[0]);
    out[0] = incoming * ((Real(1) - x[1]) * sigmoid(x[0]) - x[2] * (x[1] * sigmoid(-x[0])));
    out[1] = incoming * (x[2] * of.miss - of.hit);
    out[2] = incoming * (x[1] * of.miss);
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[3], const Real (&v)[3],
                                           Real (&out)[3]) const {
    const Losses of(x[0]);
    const Real p = sigmoid(x[0]), q = sigmoid(-x[0]);
    const Real both = p * q * (x[2] * x[1] + (Real(1) - x[1]));
    const Real mixed = -(x[2] * q + p);
    out[0] = both * v[0] + mixed * v[1] - x[1] * q * v[2];
    out[1] = mixed * v[0] + of.miss * v[2];
    out[2] = of.miss * v[1] - x[1] * q * v[0];
  }

 private:
  struct Losses {
    Real miss;  // of target 1: softplus(-input)
    Real hit;   // of target 0: softplus(input)

    LOSSCLI_HOST_DEVICE explicit Losses(Real input) {
      const Real tail = softplus_tail(input);
      miss = (input < Real(0) ? -input : Real(0)) + tail;
      hit = (input > Real(0) ? input : Real(0)) + tail;
    }
  };
};

}  // namespace losscli
