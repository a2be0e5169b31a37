// What functors and the loops over rows have in common: the logarithm of a softmax, kept exact
// where logits are large.
//
// A functor `Loss<Real>` is made from a Call and has
//   kOperands, kSums, kValues   rows of logits, sums over a row's classes, values of a row
//   kTokens                     whether each row has a token
//   needs_sums()                whether the sums are read in this call
//   add(log_p, p, sums)         adds the terms of one class; log_p and p of each operand
//   values(sums, token_log_p, values)
//   gradients(log_p, p, sums, is_token, incoming, gradients)   of one class's logits, over
//   temperature
// A class whose logits are -inf has p = 0 and must add 0.
#pragma once

#include <limits>

#include "core/math.h"
#include "core/platform.h"
#include "rowfunctors/call.h"

namespace losscli::rowfunctors {

template <typename Real>
constexpr Real kLeast = -std::numeric_limits<Real>::infinity();
template <typename Real>
constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();

// e^x for x <= 0, 0 where that is no normal number, so that e^-inf is 0 in any case.
template <typename Real>
LOSSCLI_HOST_DEVICE Real decay(Real x) {
  constexpr Real kBound = sizeof(Real) == 8 ? Real(-708) : Real(-87);
  const Real power = exponential(x < kBound ? kBound : x);
  return x < kBound ? Real(0) : power;
}

// The largest logit of a row, or of a part of it, and the sum of e^(x - largest).
template <typename Real>
struct Partition {
  Real largest = kLeast<Real>;
  Real sum = 0;

  LOSSCLI_HOST_DEVICE void raise(Real to) {
    if (!(to > largest)) return;
    sum *= decay(largest - to);
    largest = to;
  }
  LOSSCLI_HOST_DEVICE void merge(const Partition& other) {
    const Real most = other.largest > largest ? other.largest : largest;
    // Of nothing but -inf both differences would be NaN.
    if (most == kLeast<Real>) return;
    sum = sum * decay(largest - most) + other.sum * decay(other.largest - most);
    largest = most;
  }
};

// Two steps: largest + log(sum), rounded, would lose the digits of x - lse for large logits.
template <typename Real>
struct LogSoftmax {
  Real largest = 0;
  Real log_sum = 0;

  LOSSCLI_HOST_DEVICE LogSoftmax() {}
  LOSSCLI_HOST_DEVICE explicit LogSoftmax(const Partition<Real>& partition)
      : largest(partition.largest), log_sum(logarithm(partition.sum)) {}
  LOSSCLI_HOST_DEVICE Real of(Real logit) const { return (logit - largest) - log_sum; }
};

}  // namespace losscli::rowfunctors
