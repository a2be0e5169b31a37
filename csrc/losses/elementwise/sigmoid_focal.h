// Focal loss of logits (Lin et al., Focal Loss for Dense Object Detection, 2017), as
// torchvision.ops.sigmoid_focal_loss has it: with p = sigmoid(input) and
//   m = p (1 - target) + (1 - p) target       the probability of the other class, 1 - p_t,
//   a = alpha target + (1 - alpha) (1 - target), or 1 where alpha < 0,
// a m^gamma c, where c is the binary cross entropy of the logit: softplus(input) - input target.
//
// Written with m, which does not cancel where p_t is near 1, and with 1 - p = sigmoid(-input). The
// derivatives treat powers of 0 as PyTorch's pow does: a power whose factor is 0 is 0. Where
// m is 0, the logit's own derivatives are 0, too.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct sigmoid_focal {
  static constexpr Signature<2, 2> signature{{"input", "target"},
                                             {{{"alpha", -kInfinity<double>}, {"gamma", 0.0}}}};
  static constexpr bool costly = true;

  // A power in two parts: m may be so small that the rounding of the exponent shows. Exponents of
  // 0, 1 and 2, which a gamma of 2 has, are products.
  struct Power {
    Real exponent, rest;
    Real is_product;  // 1 or 0

    explicit Power(double of)
        : exponent(static_cast<Real>(of)),
          rest(static_cast<Real>(of - exponent)),
          is_product(of == 0 || of == 1 || of == 2) {}

    LOSSCLI_HOST_DEVICE Real operator()(Real base) const {
      return chosen(
          is_product,
          [&]() LOSSCLI_LAMBDA {
            const Real product = exponent > Real(1) ? base * base : base;
            return exponent > Real(0) ? product : Real(1);
          },
          [&]() LOSSCLI_LAMBDA { return power(base, exponent, rest); });
    }
  };

  Real positive, negative;  // weights of targets 1 and 0
  Real contrast;            // the one less the other
  Real gamma;
  Real gamma_twice;  // gamma (gamma - 1)
  // Of m, in the value and its derivatives; with exponents of 0 where their factor is 0.
  Power whole, once, twice;

  explicit sigmoid_focal(const double* values)
      : positive(static_cast<Real>(values[0] < 0 ? 1 : values[0])),
        negative(static_cast<Real>(values[0] < 0 ? 1 : 1 - values[0])),
        contrast(static_cast<Real>(values[0] < 0 ? 0 : 2 * values[0] - 1)),
        gamma(static_cast<Real>(values[1])),
        gamma_twice(static_cast<Real>(values[1] * (values[1] - 1))),
        whole(values[1]),
        once(gamma == Real(0) ? 0 : values[1] - 1),
        twice(gamma_twice == Real(0) ? 0 : values[1] - 2) {}

  bool is_usual() const { return whole.is_product * once.is_product * twice.is_product > Real(0); }

  LOSSCLI_HOST_DEVICE sigmoid_focal usual_form() const {
    sigmoid_focal usual = *this;
    usual.whole.is_product = usual.once.is_product = usual.twice.is_product = 1;
    return usual;
  }

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Terms at(*this, x);
    return at.alpha * (at.entropy * whole(at.miss));
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Terms at(*this, x);
    const Real weight = whole(at.miss), steep = gamma * once(at.miss);
    const Real by_input = weight * (at.slope + times_gamma(at.entropy * at.ratio));
    const Real by_target = at.entropy * (steep * at.turn) - weight * x[0];
    out[0] = incoming * (at.alpha * by_input);
    out[1] = incoming * (at.alpha * by_target + contrast * (at.entropy * weight));
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Terms at(*this, x);
    const Real p = at.p, q = at.q;
    const Real weight = whole(at.miss), steep = gamma * once(at.miss);
    const Real bent = gamma_twice * twice(at.miss);
    const Real along = gamma * at.ratio;
    const Real squared = gamma_twice * at.ratio * at.ratio;
    const Real second = gamma * at.ratio * (q - p);
    const Real by_input = weight * (at.slope + at.entropy * along);
    const Real by_target = at.entropy * (steep * at.turn) - weight * x[0];
    const Real input_input =
        weight * (p * q + Real(2) * at.slope * along + at.entropy * (squared + second));
    const Real input_target =
        (at.slope * steep * at.turn - weight - x[0] * weight * along) +
        at.entropy * ((gamma - Real(1)) * steep * at.ratio * at.turn - Real(2) * steep * p * q);
    const Real target_target = at.turn * (at.entropy * bent * at.turn - Real(2) * x[0] * steep);
    const Real mixed = at.alpha * input_target + contrast * by_input;
    out[0] = at.alpha * input_input * v[0] + mixed * v[1];
    out[1] = mixed * v[0] + (at.alpha * target_target + Real(2) * contrast * by_target) * v[1];
  }

 private:
  struct Terms {
    Real p, q;     // sigmoid of the input, and 1 less it
    Real alpha;    // a
    Real miss;     // m
    Real entropy;  // c
    Real slope;    // the derivative of c by the input
    Real turn;     // the derivative of m by the target
    Real ratio;    // the derivative of m by the input, over m

    LOSSCLI_HOST_DEVICE Terms(const sigmoid_focal& loss, const Real (&x)[2])
        : p(sigmoid(x[0])), q(sigmoid(-x[0])) {
      const Real target = x[1], rest = Real(1) - target;
      alpha = loss.positive * target + loss.negative * rest;
      const Real likely = p * rest + q * target;
      // Of a target far outside [0, 1] no probability.
      miss = likely < Real(0) ? kNotANumber<Real> : likely;
      const Real linear = x[0] * ((x[0] > Real(0) ? Real(1) : Real(0)) - target);
      entropy = linear + softplus_tail(x[0]);
      slope = x[0] > Real(0) ? rest - q : p - target;
      turn = q - p;
      ratio = miss > Real(0) ? p * q / miss * (rest - target) : miss;
    }
  };

  // 0 of a gamma of 0, even where the other factor is infinite.
  LOSSCLI_HOST_DEVICE Real times_gamma(Real factor) const {
    return gamma == Real(0) ? Real(0) : gamma * factor;
  }
};

}  // namespace losscli
