// Policy-gradient loss of a token, with r = e^(log_probs - old_log_probs) and the advantage A:
//   -A min(r, 1 + clip_high)                    where A >= 0,
//   -A min(max(r, 1 - clip_low), dual_clip)     where A < 0
// (PPO, Schulman et al., 2017, arXiv:1707.06347; a dual clip of 0 stands for none), or with cispo
//   -A w log_probs, where w is r between 1 - clip_low and 1 + clip_high, and a constant
// (MiniMax-M1, 2025, arXiv:2506.13585). The derivatives are those for log_probs; all else is
// constant. On a bound the gradient passes, as that of torch.clamp does.
#pragma once

#include <cmath>

#include "losses/elementwise/loss.h"

namespace losscli {

template <typename Real>
struct policy {
  static constexpr Signature<3, 4> signature{
      {"log_probs", "old_log_probs", "advantages"},
      {{{"clip_low", 0.0, 1.0}, {"clip_high", 0.0}, {"dual_clip", 0.0}, make_switch("cispo")}}};
  static constexpr bool costly = true;

  // A bound of the ratio, and its logarithm in two parts: a token on the wrong side of it has a
  // whole gradient for none.
  struct Bound {
    Real ratio, log, log_rest;

    Bound(double of, double log_of)
        : ratio(static_cast<Real>(of)),
          log(static_cast<Real>(log_of)),
          log_rest(std::isfinite(log) ? static_cast<Real>(log_of - log) : Real(0)) {}
  };

  Bound low, high, highest;  // the last where A < 0
  // 1 or 0. Two copies, the second for what is not the value alone: GCC makes a branch of a
  // condition that both read, and then vectorises no loop.
  Real cispo, bounds_both;

  explicit policy(const double* values)
      : low(1 - values[0], std::log1p(-values[0])),
        high(1 + values[1], std::log1p(values[1])),
        highest(values[2],
                values[2] > 0 && values[3] == 0 ? std::log(values[2]) : kInfinity<double>),
        cispo(values[3] != 0),
        bounds_both(values[3] != 0) {}

  LOSSCLI_HOST_DEVICE Real value(const Real (&x)[3]) const {
    const Real ratio = Ratio(*this, x).clipped;
    return (cispo > Real(0) ? ratio * x[0] : ratio) * -x[2];
  }

  LOSSCLI_HOST_DEVICE void gradient(const Real (&x)[3], Real incoming, Real (&out)[3]) const {
    const Ratio at(*this, x);
    // Chosen, not multiplied: where the ratio is clipped, no upstream gradient passes, not even
    // NaN.
    const bool passes = (bounds_both > Real(0)) | at.is_free;
    out[0] = passes ? product(incoming, at.clipped, -x[2]) : Real(0);
    out[1] = out[2] = Real(0);
  }

  LOSSCLI_HOST_DEVICE void hessian_product(const Real (&x)[3], const Real (&v)[3],
                                           Real (&out)[3]) const {
    const Ratio at(*this, x);
    const bool is_curved = !(bounds_both > Real(0)) & at.is_free;
    out[0] = is_curved ? -x[2] * at.clipped * v[0] : Real(0);
    out[1] = out[2] = Real(0);
  }

 private:
  struct Ratio {
    Real clipped;
    bool is_free;  // of bounds

    LOSSCLI_HOST_DEVICE Ratio(const policy& loss, const Real (&x)[3]) {
      const Real log = x[0] - x[1], rest = lost(x[0], x[1], log);
      const auto beyond = [&](const Bound& bound) LOSSCLI_LAMBDA {
        return (log - bound.log) + (rest - bound.log_rest);
      };
      const bool falls = x[2] < Real(0);
      const bool both = loss.bounds_both > Real(0);
      const bool is_low = (falls | both) & (beyond(loss.low) < Real(0));
      const bool is_high = (!falls | both) & (beyond(loss.high) > Real(0));
      const bool is_highest = falls & (beyond(loss.highest) > Real(0));
      const Real power = exponential(log), free = power + finite_or_zero(power * rest);
      const Real most = is_highest ? loss.highest.ratio : free;
      const Real above = is_high ? loss.high.ratio : most;
      clipped = is_low ? loss.low.ratio : above;
      is_free = !(is_low | is_high | is_highest);
    }
  };

  // A small advantage keeps its digits until the end; of float64 as autograd rounds.
  LOSSCLI_HOST_DEVICE static float product(float incoming, float ratio, float slope) {
    return incoming * ratio * slope;
  }
  LOSSCLI_HOST_DEVICE static double product(double incoming, double ratio, double slope) {
    return incoming * slope * ratio;
  }
};

}  // namespace losscli
