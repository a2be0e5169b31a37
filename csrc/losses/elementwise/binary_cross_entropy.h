// Binary cross entropy of probabilities: -(target log(input) + (1 - target) log(1 - input)), with
// logarithms of at least -100 and input and target between 0 and 1.
//
// Derivatives as in PyTorch (aten/src/ATen/native/Loss.cpp): the clamp of the logarithms has no
// part in them. Instead the denominator (1 - input) input is kept at 1e-12 and above. PyTorch adds
// 1e-12 to both factors in the second derivative (binary_cross_entropy_double_backward in
// torch/csrc/autograd/FunctionsManual.cpp), which is no derivative of its first to more than 11
// digits; here it is. The target's gradient log(1 - input) - log(input) is infinite at 0 and 1.
//
// Of operands outside [0, 1], and of NaN, the loss and its gradients are NaN: on the CPU the public
// function then raises PyTorch's error.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct binary_cross_entropy {
  static constexpr Signature<2, 0> signature{{"input", "target"}, {}};
  static constexpr bool costly = true;

  explicit binary_cross_entropy(const double*) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    Real hit, miss;
    log_probabilities(x[0], hit, miss);  // one of them NaN for an input outside [0, 1]
    const Real loss =
        (x[1] - Real(1)) * (miss < kLeast ? kLeast : miss) - x[1] * (hit < kLeast ? kLeast : hit);
    return is_probability(x[1]) ? loss : kNotANumber<Real>;
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real product = (Real(1) - x[0]) * x[0];
    const Real slope =
        incoming * quotient(x[0] - x[1], product < kLeastProduct ? kLeastProduct : product);
    const bool inside = is_probability(x[0]) && is_probability(x[1]);
    out[0] = inside ? slope : kNotANumber<Real>;
    out[1] = inside ? incoming * log_odds_against(x[0]) : kNotANumber<Real>;
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    // input^2 - 2 input target + target, as a sum of two terms of one sign.
    const Real rest = x[0] - x[1];
    const Real numerator = rest * rest + x[1] * (Real(1) - x[1]);
    const Real product = (Real(1) - x[0]) * x[0], kept = product < kEpsilon ? kEpsilon : product;
    const Real mixed = Real(-1) / kept;
    out[0] = numerator / kept / kept * v[0] + mixed * v[1];
    out[1] = mixed * v[0];
  }

 private:
  static constexpr Real kLeast = -100;
  static constexpr Real kEpsilon = 1e-12;
  static constexpr Real kLeastProduct = 1e-12f;  // a float for all dtypes, as in PyTorch

  LOSSCLI_HOST_DEVICE static bool is_probability(Real p) { return p >= Real(0) && p <= Real(1); }

  // log(1 - p) - log(p); near 1/2, where the two cancel, in another form.
  LOSSCLI_HOST_DEVICE static Real log_odds_against(Real p) {
    const Real near = log_of_one_plus((Real(1) - (p + p)) / p);
    const Real far = log_of_one_plus(-p) - logarithm(p);
    return p > Real(0.25) && p < Real(0.75) ? near : far;
  }
};

}  // namespace losscli
