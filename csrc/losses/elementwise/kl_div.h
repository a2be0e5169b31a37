// Kullback-Leibler divergence, of log-probabilities as input: target (log(target) - input), 0 where
// the target is 0; with log_target, whose target are log-probabilities, e^target (target - input).
//
// The target's gradient is NaN at 0, as autograd has it for torch.xlogy(target, target). Where
// log(target) is near the input, what its rounding leaves shows in the difference, as in any
// formula that knows the logarithm in Real only.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct kl_div {
  static constexpr Signature<2, 1> signature{{"input", "target"}, {{make_switch("log_target")}}};

  static constexpr bool costly = true;

  Real log_target;  // 1 or 0
  Real nothing;     // the target of which the loss is 0; NaN where there is none

  explicit kl_div(const double* values)
      : log_target(values[0] != 0), nothing(values[0] != 0 ? kNotANumber<Real> : Real(0)) {}

  bool is_usual() const { return !(log_target > Real(0)); }

  LOSSCLI_HOST_DEVICE kl_div usual_form() const {
    kl_div usual = *this;
    usual.log_target = 0;
    usual.nothing = 0;
    return usual;
  }

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real rest = log_probability(x[1]) - x[0];
    // Of an infinite input NaN, even where the target is 0.
    return probability(x[1]) * (x[1] == nothing ? x[0] : rest);
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real one = chosen(
        log_target, []() LOSSCLI_LAMBDA { return Real(1); },
        [&]() LOSSCLI_LAMBDA { return x[1] / x[1]; });
    const Real weight = log_target > Real(0) ? probability(x[1]) : Real(1);
    const Real rest = log_probability(x[1]) - x[0];
    out[0] = -incoming * probability(x[1]);
    // In the order in which autograd rounds.
    out[1] = multiply_add(incoming * rest, weight, incoming * weight * one);
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real weight = log_target > Real(0) ? probability(x[1]) : Real(1);
    const Real of_logarithm = (x[1] - x[0] + Real(2)) * v[1], of_target = v[1] / x[1];
    out[0] = -weight * v[1];
    out[1] = weight * ((log_target > Real(0) ? of_logarithm : of_target) - v[0]);
  }

 private:
  LOSSCLI_HOST_DEVICE Real probability(Real target) const {
    return chosen(
        log_target, [&]() LOSSCLI_LAMBDA { return exponential(target); },
        [&]() LOSSCLI_LAMBDA { return target; });
  }

  LOSSCLI_HOST_DEVICE Real log_probability(Real target) const {
    return chosen(
        log_target, [&]() LOSSCLI_LAMBDA { return target; },
        [&]() LOSSCLI_LAMBDA { return logarithm(target); });
  }
};

}  // namespace losscli
