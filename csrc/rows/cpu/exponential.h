// e^(x - max) of the logits of a row, in units so small that no result is subnormal.
//
// The difference is taken with what its rounding leaves: of x - max = -10 alone, rounded, the
// exponential would be wrong in its last three bits.
#pragma once

#include "core/vector_math.h"

namespace losscli::cpu {

// e^0, the exponential of the largest logit. A power of two, and at least the smallest number above
// zero gets a normal one: the factor that a row's exponentials are multiplied by takes it back.
template <typename Real>
constexpr Real kUnit = sizeof(Real) == 8 ? Real(0x1p53) : Real(0x1p24);

// For x <= max: kUnit times e^((x - max) * inverse), within 1.1 units in the last place where that
// factor is 1; 0 below the smallest number that Real holds, and so of -inf. NaN where the
// difference is.
template <typename Real>
LOSSCLI_HOST_DEVICE Real unit_exponential(Real x, Real max, Real inverse = 1) {
  using namespace vector_math;
  using F = Format<Real>;
  constexpr BitsOf<Real> kUnitExponent = F::kDigits + 1;
  const Pair<Real> difference = exact_sum(x, -max);
  const Real scaled = difference.high * inverse;
  const bool outside = scaled < F::kLogarithmOfLeast;
  const Real high = outside ? F::kLogarithmOfLeast : scaled;
  const Real low = outside ? Real(0) : difference.low * inverse;
  const Real shifted = high * Real(1.4426950408889634074) + F::kShift;
  const Real count = shifted - F::kShift;
  const Real rest = (high - count * F::kLogTwoHigh) - (count * F::kLogTwoLow - low);
  const Real series = rest + rest * rest * (Real(0.5) + rest * exponential_series(rest));
  const BitsOf<Real> exponent = bit_cast<BitsOf<Real>>(shifted) - bit_cast<BitsOf<Real>>(F::kShift);
  const Real power = power_of_two<Real>(exponent + kUnitExponent);
  return outside ? Real(0) : power + power * series;
}

}  // namespace losscli::cpu
