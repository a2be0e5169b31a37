// Negative log-likelihood of a Poisson distribution, as torch.nn.functional.poisson_nll_loss:
//   e^input - target input               with log_input,
//   input - target log(input + eps)      without,
// and with full, where target > 1, Stirling's approximation of log(target!) besides:
//   target log(target) - target + 0.5 log(2 pi target).
// Its derivative by the target is 0 up to a target of 1, also at 0, where autograd of PyTorch's
// function multiplies 0 by an infinite logarithm.
#pragma once

#include <limits>

#include "losses/loss.h"

namespace losscli {

template <typename Real>
struct poisson_nll {
  static constexpr Signature<2, 3> signature{
      {"input", "target"}, {{make_switch("log_input"), make_switch("full"), {"eps", 0.0}}}};

  // All forms are computed and one is chosen.
  Real log_input;  // 1 or 0
  Real full;
  Real eps;

  explicit poisson_nll(const double* values)
      : log_input(values[0] != 0), full(values[1] != 0), eps(static_cast<Real>(values[2])) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[2]) const {
    const Real power = exponential(x[0]), log_target = logarithm(x[1]);
    const Real loss = multiply_add(-x[1], log_rate(x[0]), log_input > Real(0) ? power : x[0]);
    const Real stirling =
        multiply_add(x[1], log_target, -x[1]) + Real(0.5) * (kLogTwoPi + log_target);
    return loss + above_one(x[1], stirling);
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[2], Real incoming, Real (&out)[2]) const {
    const Real power = exponential(x[0]), rate = x[0] + eps;
    // 1 - target / (input + eps), which keeps its digits where the two are near.
    const Real finite = ((x[0] - x[1]) + eps) / rate, infinite = Real(1) - x[1] / rate;
    const Real slope = absolute(rate) < kInfinity ? finite : infinite;
    out[0] = incoming * (log_input > Real(0) ? power - x[1] : slope);
    const Real stirling = logarithm(x[1]) + Real(0.5) / x[1];
    out[1] = incoming * (above_one(x[1], stirling) - log_rate(x[0]));
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[2], const Real (&v)[2],
                                           Real (&out)[2]) const {
    const Real power = exponential(x[0]), rate = x[0] + eps;
    const Real of_logarithm = power * v[0] - v[1];
    const Real of_rate = (x[1] / rate * v[0] - v[1]) / rate, mixed = v[0] / rate;
    const Real curvature = (Real(1) - Real(0.5) / x[1]) / x[1];
    out[0] = log_input > Real(0) ? of_logarithm : of_rate;
    out[1] = above_one(x[1], curvature) * v[1] - (log_input > Real(0) ? v[0] : mixed);
  }

 private:
  static constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  static constexpr Real kLogTwoPi = Real(1.83787706640934548356);

  // A part of Stirling's approximation, for targets above 1.
  LOSSCLI_HOST_DEVICE Real above_one(Real target, Real part) const {
    const Real chosen = target <= Real(1) ? Real(0) : part;
    return full > Real(0) ? chosen : Real(0);
  }

  // The logarithm of the rate: the input, or log(input + eps), with what the rounding of the sum
  // leaves, for it shows near 1.
  LOSSCLI_HOST_DEVICE Real log_rate(Real input) const {
    const Real sum = input + eps;
    const Real beside_input = eps - (sum - input), beside_eps = input - (sum - eps);
    const Real rest = (input > eps ? beside_input : beside_eps) / sum;
    // An infinite or vanishing sum leaves nothing.
    const Real found = logarithm(sum) + (absolute(rest) < Real(1) ? rest : Real(0));
    return log_input > Real(0) ? input : found;
  }
};

}  // namespace losscli
