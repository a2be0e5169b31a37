// Negative log-likelihood of a Poisson distribution, as torch.nn.functional.poisson_nll_loss:
//   e^input - target input               with log_input,
//   input - target log(input + eps)      without,
// and with full, where target > 1, Stirling's approximation of log(target!) besides:
//   target log(target) - target + 0.5 log(2 pi target).
// Its derivative by the target is 0 up to a target of 1, also at 0, where autograd of PyTorch's
// function multiplies 0 by an infinite logarithm.
#pragma once

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct poisson_nll {
  static constexpr Signature<2, 3> signature{
      {"input", "target"}, {{make_switch("log_input"), make_switch("full"), {"eps", 0.0}}}};

  static constexpr bool costly = true;

  Real log_input;  // 1 or 0
  Real full;
  Real eps;

  explicit poisson_nll(const double* values)
      : log_input(values[0] != 0), full(values[1] != 0), eps(static_cast<Real>(values[2])) {}

  bool is_usual() const { return log_input > Real(0) && !(full > Real(0)); }

  LOSSCLI_HOST_DEVICE poisson_nll usual_form() const {
    poisson_nll usual = *this;
    usual.log_input = 1;
    usual.full = 0;
    return usual;
  }

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real rate = chosen(
        log_input, [&]() LOSSCLI_LAMBDA { return exponential(x[0]); },
        [&]() LOSSCLI_LAMBDA { return x[0]; });
    const Real loss = multiply_add(-x[1], log_rate(x[0]), rate);
    return loss + of_full(x[1], [&]() LOSSCLI_LAMBDA {
             const Real log_target = logarithm(x[1]);
             return multiply_add(x[1], log_target, -x[1]) + Real(0.5) * (kLogTwoPi + log_target);
           });
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real slope = chosen(
        log_input, [&]() LOSSCLI_LAMBDA { return exponential(x[0]) - x[1]; },
        [&]() LOSSCLI_LAMBDA {
          // 1 - target / (input + eps), which keeps its digits where the two are near.
          const Real rate = x[0] + eps;
          const Real finite = ((x[0] - x[1]) + eps) / rate, infinite = Real(1) - x[1] / rate;
          return absolute(rate) < kInfinity<Real> ? finite : infinite;
        });
    out[0] = incoming * slope;
    const Real stirling =
        of_full(x[1], [&]() LOSSCLI_LAMBDA { return logarithm(x[1]) + Real(0.5) / x[1]; });
    out[1] = incoming * (stirling - log_rate(x[0]));
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real power = exponential(x[0]), rate = x[0] + eps;
    const Real of_logarithm = power * v[0] - v[1];
    const Real of_rate = (x[1] / rate * v[0] - v[1]) / rate, mixed = v[0] / rate;
    const Real curvature =
        of_full(x[1], [&]() LOSSCLI_LAMBDA { return (Real(1) - Real(0.5) / x[1]) / x[1]; });
    out[0] = log_input > Real(0) ? of_logarithm : of_rate;
    out[1] = curvature * v[1] - (log_input > Real(0) ? v[0] : mixed);
  }

 private:
  static constexpr Real kLogTwoPi = Real(1.83787706640934548356);

  // A part of Stirling's approximation, for targets above 1.
  template <typename Part>
  LOSSCLI_HOST_DEVICE Real of_full(Real target, Part part) const {
    const auto above_one = [&]() LOSSCLI_LAMBDA {
      const Real found = part();
      return target <= Real(1) ? Real(0) : found;
    };
    return chosen(full, above_one, []() LOSSCLI_LAMBDA { return Real(0); });
  }

  // The logarithm of the rate: the input, or log(input + eps), with what the rounding of the sum
  // leaves, for it shows near 1.
  LOSSCLI_HOST_DEVICE Real log_rate(Real input) const {
    return chosen(
        log_input, [&]() LOSSCLI_LAMBDA { return input; },
        [&]() LOSSCLI_LAMBDA {
          const Real sum = input + eps;
          const Real beside_input = eps - (sum - input), beside_eps = input - (sum - eps);
          const Real rest = (input > eps ? beside_input : beside_eps) / sum;
          // An infinite or vanishing sum leaves nothing.
          return logarithm(sum) + (absolute(rest) < Real(1) ? rest : Real(0));
        });
  }
};

}  // namespace losscli
