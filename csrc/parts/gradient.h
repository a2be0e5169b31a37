// The gradients of a part's logits, of the numbers of the whole row: no pass over the row comes
// before. A formula is made for a row, and then asked for each class.
#pragma once

#include "core/math.h"
#include "losses/rows/loss.h"
#include "parts/kernels.h"

namespace losscli {

// The numbers of a row; `Number` is how they lie in memory.
template <typename Real, typename Number>
struct WholeRow {
  LOSSCLI_HOST_DEVICE WholeRow(const PartGradientArguments& a, int64_t row)
      : numbers(static_cast<const Number*>(a.whole) + row), rows(a.rows) {}
  LOSSCLI_HOST_DEVICE Real of(int number) const {
    return static_cast<Real>(numbers[number * rows]);
  }
  const Number* numbers;
  int64_t rows;
};

// What multiplies the gradients of a row: `read(output)` is the upstream gradient, and a mean
// divides by what its rows count, if any does.
template <typename Real, typename Read>
LOSSCLI_HOST_DEVICE Real incoming_of(const PartGradientArguments& a, const Read& read, int output) {
  const double number = read(output);
  if (!a.totals) return static_cast<Real>(number);
  return static_cast<Real>(a.totals[kCounted] == 0 ? 0 : number / a.totals[kWeight]);
}

// Of each class, with p its probability and w its weight, the gradient is
//   p * (of_all + of_log * log(p)) - of_share * w
// and of the row's own class of_own less; all of it over the temperature. `plain`: without
// label smoothing and entropies; `capped`: with a softcap.
template <typename Real, typename Number, bool plain, bool capped>
struct PartGradient {
  static constexpr int kOperands = 1;

  template <typename Read>
  LOSSCLI_HOST_DEVICE PartGradient(const PartGradientArguments& a, int64_t row, const Read& read)
      : weights(static_cast<const Number*>(a.weight)) {
    const PartSettings& settings = a.settings;
    const int64_t target = a.targets[row];
    counts = !settings.may_ignore || target != settings.ignored;
    const WholeRow<Real, Number> whole(a, row);
    top = whole.of(kTop);
    log = whole.of(kLog);
    inverse_sum = exponential(-log);
    inverse = static_cast<Real>(settings.inverse);
    inverse_divisor = static_cast<Real>(settings.inverse_divisor());
    softcap = static_cast<Real>(settings.softcap);
    inverse_cap = static_cast<Real>(settings.inverse_cap);

    const Real incoming = incoming_of<Real>(a, read, 0);
    const Real log_prob = whole.of(kLogProb);
    Real own, beyond;  // what multiplies the probabilities beyond what the own class asks for
    if (!plain && settings.entropy) {
      of_log = -incoming_of<Real>(a, read, 1);
      own = -incoming;
      beyond = of_log * whole.of(settings.entropy_at());
    } else {
      own = incoming * static_cast<Real>(1 - settings.smoothing);
      if (settings.weighted) own *= whole.of(settings.weight_at());
      beyond = 0;
      if (settings.z_loss != 0)
        beyond = incoming * static_cast<Real>(2 * settings.z_loss) * (top * inverse_divisor + log);
      if (!plain && settings.smoothing != 0) {
        const Real classes = static_cast<Real>(settings.classes);
        of_share = incoming * (static_cast<Real>(settings.smoothing) / classes);
        beyond += of_share * (a.total_weight
                                  ? static_cast<Real>(*static_cast<const Number*>(a.total_weight))
                                  : classes);
      }
    }
    const bool known = target >= 0 && target < settings.classes;
    of_all = known ? own + beyond : static_cast<Real>(__builtin_nan(""));
    // Keeps its digits where the probability is near 1.
    const Real p = exponential(log_prob);
    of_own = exponential_minus_one(log_prob) * own + p * beyond;
    if constexpr (!plain) of_own += of_log * select(p == Real(0), Real(0), p * log_prob);
    place = target - a.first;
    if (place < 0 || place >= a.width) place = -1;
  }

  // Of the class `at` of the part, which may be beside it; `own`: that of the row. `power(below)`
  // is the exponential of how far a logit is below the largest.
  template <typename Power>
  LOSSCLI_HOST_DEVICE void of_class(Real weight, bool own, const Real (&x)[1], const Power& power,
                                    Real (&out)[1]) const {
    Real bent = x[0], slope = inverse;
    if constexpr (capped) {
      const Real u = x[0] * inverse_cap, q = exponential(-2 * size_of(u));
      bent = softcap * hyperbolic_tangent(u);
      slope *= 4 * q / ((1 + q) * (1 + q));  // 1 - tanh(u)^2, which cancels
    }
    const Real below = top - bent, p = power(below) * inverse_sum;
    Real found = p * of_all;
    if constexpr (!plain) {
      const Real log_p = -below * inverse_divisor - log;
      found += select(of_log == Real(0) || p == Real(0), Real(0), of_log * (p * log_p));
    }
    found = select(own, of_own, found);
    if constexpr (!plain) found -= select(of_share == Real(0), Real(0), of_share * weight);
    out[0] = found * slope;
  }

  // The weight of a class of the part.
  LOSSCLI_HOST_DEVICE Real weight_of(int64_t at) const {
    return !plain && weights ? static_cast<Real>(weights[at]) : Real(1);
  }

  const Number* weights;
  bool counts;
  int64_t place;  // of the row's own class in this part, -1 where it is in none
  Real top, log, inverse_sum, inverse, inverse_divisor, softcap, inverse_cap;
  Real of_all, of_own, of_log = 0, of_share = 0;
};

// Of the logits of p and of q, for the sum of q * log(q / p).
template <typename Real, typename Number>
struct DivergenceGradient {
  static constexpr int kOperands = 2;

  template <typename Read>
  LOSSCLI_HOST_DEVICE DivergenceGradient(const PartGradientArguments& a, int64_t row,
                                         const Read& read) {
    const WholeRow<Real, Number> whole(a, row);
    counts = !a.mask || a.mask[row];
    loss = whole.of(kDivergence);
    top_p = whole.of(kTopP);
    top_q = whole.of(kTopQ);
    log_p = whole.of(kLogP);
    log_q = whole.of(kLogQ);
    inverse = static_cast<Real>(a.settings.inverse);
    inverse_p = exponential(-log_p);
    inverse_q = exponential(-log_q);
    scale = incoming_of<Real>(a, read, 0) * inverse;
  }

  template <typename Power>
  LOSSCLI_HOST_DEVICE void of_class(Real, bool, const Real (&x)[2], const Power& power,
                                    Real (&out)[2]) const {
    const Real below_p = top_p - x[0], below_q = top_q - x[1];
    const Real p = power(below_p) * inverse_p, q = power(below_q) * inverse_q;
    const Real excess = (below_p * inverse + log_p) - (below_q * inverse + log_q) - loss;
    out[0] = scale * (p - q);
    out[1] = scale * weighed(q, excess);
  }

  LOSSCLI_HOST_DEVICE Real weight_of(int64_t) const { return 1; }

  bool counts;
  static constexpr int64_t place = -1;
  Real loss, top_p, top_q, log_p, log_q, inverse, inverse_p, inverse_q, scale;
};

}  // namespace losscli
