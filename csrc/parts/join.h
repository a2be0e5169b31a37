// How the numbers of parts make those of a row, and its loss.
#pragma once

#include "core/math.h"
#include "parts/kernels.h"

namespace losscli {

template <typename Real>
constexpr Real kInfinity = static_cast<Real>(__builtin_huge_val());
template <typename Real>
constexpr Real kNaN = static_cast<Real>(__builtin_nan(""));

// The numbers of one row. `Stored` is how they lie in memory.
template <typename Real, typename Stored>
class PartsOfRow {
 public:
  LOSSCLI_HOST_DEVICE PartsOfRow(const JoinArguments& arguments, int64_t row)
      : a_(arguments),
        numbers_(static_cast<const Stored*>(arguments.numbers) + row),
        whole_(static_cast<Stored*>(arguments.whole) + row) {}

  LOSSCLI_HOST_DEVICE Real of(int64_t part, int number) const {
    return static_cast<Real>(numbers_[part * a_.part_stride + number * a_.rows]);
  }

  LOSSCLI_HOST_DEVICE int64_t width(int64_t part) const {
    const int64_t at = part * a_.width_stride;
    return a_.widths_dtype == DType::int64 ? static_cast<const int64_t*>(a_.widths)[at]
                                           : static_cast<const int32_t*>(a_.widths)[at];
  }

  // The largest of the parts' largest logits, and the logarithm of all exponentials beside it.
  LOSSCLI_HOST_DEVICE Real top(int number) const {
    Real top = of(0, number);
    for (int64_t part = 1; part < a_.parts; ++part)
      top = of(part, number) > top ? of(part, number) : top;
    return top;
  }
  // The logarithm of a part's exponentials beside the largest logit of all.
  LOSSCLI_HOST_DEVICE Real raised(int64_t part, int number, Real top) const {
    return (of(part, number) - top) / static_cast<Real>(a_.settings.divisor()) +
           of(part, number + 1);
  }
  LOSSCLI_HOST_DEVICE Real log(int number, Real top) const {
    if (a_.parts == 1) return of(0, number + 1);
    Real sum = 0;
    for (int64_t part = 0; part < a_.parts; ++part) sum += exponential(raised(part, number, top));
    return logarithm(sum);
  }

  // Whether the parts have the classes that they were said to have.
  LOSSCLI_HOST_DEVICE bool are_right() const {
    if (a_.rank < 0) return true;
    int64_t end = a_.start, first = -1;
    for (int64_t part = 0; part < a_.parts; ++part) {
      if (part == a_.rank) first = end;
      end += width(part);
    }
    return first == a_.first && end == a_.stop;
  }

  // The part that has a class, -1 where none has.
  LOSSCLI_HOST_DEVICE int64_t owner(int64_t target) const {
    if (target < a_.start || target >= a_.stop) return -1;
    int64_t end = a_.start;
    for (int64_t part = 0; part < a_.parts; ++part)
      if (target < (end += width(part))) return part;
    return -1;
  }

  LOSSCLI_HOST_DEVICE void put(int number, Real value) const {
    whole_[number * a_.rows] = static_cast<Stored>(value);
  }

 private:
  const JoinArguments& a_;
  const Stored* const numbers_;
  Stored* const whole_;
};

// The loss of a row, of all its numbers.
template <typename Real>
LOSSCLI_HOST_DEVICE Real loss_of(const PartSettings& settings, Real surprise, Real log_sum,
                                 Real logits, Real weight, Real total_weight) {
  Real loss = surprise * weight;
  const Real smoothing = static_cast<Real>(settings.smoothing);
  if (settings.smoothing != 0) {
    const Real spread = total_weight * log_sum - logits;
    loss = (1 - smoothing) * loss + spread * (smoothing / static_cast<Real>(settings.classes));
  }
  if (settings.z_loss != 0) loss += static_cast<Real>(settings.z_loss) * log_sum * log_sum;
  return loss;
}

// Logits are subtracted from each other before anything is rounded, so that numbers far from 0
// lose no digits, and what other parts have is added to what the own one lacks of 1.
template <typename Real, typename Stored>
LOSSCLI_HOST_DEVICE void join(const JoinArguments& a, int64_t row) {
  const PartSettings& settings = a.settings;
  const PartsOfRow<Real, Stored> parts(a, row);
  const int64_t target = a.targets[row], own = parts.owner(target);
  const Real top = parts.top(kTop), divisor = static_cast<Real>(settings.divisor());
  const bool right = parts.are_right();
  const Real log = right ? parts.log(kTop, top) : kNaN<Real>;
  Real log_prob = right ? Real(0) : kNaN<Real>, entropy = 0, logits = 0, weight = 1;
  if (own >= 0) {
    if (settings.weighted) weight = parts.of(own, settings.weight_at());
    if (right) log_prob = parts.of(own, kLogProb);
  }
  if (settings.smoothing != 0)
    for (int64_t part = 0; part < a.parts; ++part) logits += parts.of(part, settings.logits_at());
  if (a.parts == 1) {
    if (settings.entropy) entropy = parts.of(0, settings.entropy_at());
  } else {
    if (own >= 0 && right) {
      const Real of_own = parts.raised(own, kTop, top);
      // None of that part's classes is possible.
      const Real inside = of_own == -kInfinity<Real> ? kInfinity<Real> : -log_prob;
      const Real above = inside - of_own;
      Real rest = 0;
      for (int64_t part = 0; part < a.parts; ++part)
        if (part != own) rest += exponential(parts.raised(part, kTop, top) + above);
      const Real far = log + above;
      log_prob = -(far < 1 ? log_of_one_plus(exponential_minus_one(inside) + rest) : far);
    }
    if (settings.entropy) {
      for (int64_t part = 0; part < a.parts; ++part) {
        const Real share = parts.raised(part, kTop, top) - log;
        if (share == -kInfinity<Real>) continue;
        entropy += exponential(share) * (parts.of(part, settings.entropy_at()) - share);
      }
      if (log == -kInfinity<Real>) entropy = kNaN<Real>;
    }
  }
  parts.put(kLogProb, log_prob);
  parts.put(kTop, top);
  parts.put(kLog, log);
  if (settings.entropy) parts.put(settings.entropy_at(), entropy);
  if (settings.smoothing != 0) parts.put(settings.logits_at(), logits);
  if (settings.weighted) parts.put(settings.weight_at(), weight);

  const bool counts = !settings.may_ignore || target != settings.ignored;
  const bool known = target >= 0 && target < settings.classes;
  Stored* const value = static_cast<Stored*>(a.values) + row;
  if (counts && !known) log_prob = kNaN<Real>;
  if (settings.entropy) {
    value[0] = static_cast<Stored>(counts ? log_prob : Real(0));
    value[a.rows] = static_cast<Stored>(entropy);
    return;
  }
  const Real total = a.total_weight ? static_cast<Real>(*static_cast<const Stored*>(a.total_weight))
                                    : static_cast<Real>(settings.classes);
  const Real loss = loss_of(settings, -log_prob, top / divisor + log, logits, weight, total);
  value[kLoss * a.rows] = static_cast<Stored>(counts ? loss : Real(0));
  value[kWeight * a.rows] = static_cast<Stored>(counts ? weight : Real(0));
  value[kCounted * a.rows] = static_cast<Stored>(counts);
}

// With P and Q the shares of all probabilities of p and q that a part's classes have and D the
// divergence among them, the divergence is the sum of Q * (D + log(Q / P)).
template <typename Real, typename Stored>
LOSSCLI_HOST_DEVICE void join_divergences(const JoinArguments& a, int64_t row) {
  const PartsOfRow<Real, Stored> parts(a, row);
  const Real top_p = parts.top(kTopP), top_q = parts.top(kTopQ);
  const Real log_p = parts.log(kTopP, top_p), log_q = parts.log(kTopQ, top_q);
  Real loss = 0;
  for (int64_t part = 0; part < a.parts; ++part) {
    if (a.parts == 1) {
      loss = parts.of(part, kDivergence);
      break;
    }
    const Real of_p = parts.raised(part, kTopP, top_p) - log_p;
    const Real of_q = parts.raised(part, kTopQ, top_q) - log_q;
    if (of_q == -kInfinity<Real>) continue;
    // Where a part has no possible class of p, its own divergence is no number.
    const Real inside = of_p == -kInfinity<Real> ? Real(0) : parts.of(part, kDivergence);
    loss += exponential(of_q) * (inside + (of_q - of_p));
  }
  if (log_p == -kInfinity<Real> || log_q == -kInfinity<Real> || !parts.are_right())
    loss = kNaN<Real>;
  if (a.mask && !a.mask[row]) loss = 0;
  parts.put(kDivergence, loss);
  parts.put(kTopP, top_p);
  parts.put(kLogP, log_p);
  parts.put(kTopQ, top_q);
  parts.put(kLogQ, log_q);
}

}  // namespace losscli
