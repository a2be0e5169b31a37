// Floats and doubles taken apart: their format, their leading digits, and sums in two parts that
// lose nothing. For the functions of vector_math.h.
#pragma once

#include <cstdint>

#include "core/bits.h"
#include "core/platform.h"

namespace losscli::vector_math {

template <typename Real>
struct Format;

template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int kDigits = 23;
  static constexpr Bits kBias = 127;
  static constexpr Bits kHalfRoot = 0x3f3504f3;       // sqrt(1/2)
  static constexpr Bits kUpperHalf = 0xfffff000;      // the 12 leading digits of a number
  static constexpr float kShift = 0x1.8p23f;          // a sum with it ends in the nearest integer
  static constexpr float kLogTwoHigh = 0x1.62e4p-1f;  // times any exponent without rounding
  static constexpr float kLogTwoLow = 0x1.7f7d1cp-20f;
  static constexpr float kLogarithmOfLeast = -104;  // e to it is 0
  static constexpr float kLogarithmOfMost = 89;     // e to it is infinite
};

template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int kDigits = 52;
  static constexpr Bits kBias = 1023;
  static constexpr Bits kHalfRoot = 0x3fe6a09e667f3bcd;
  static constexpr Bits kUpperHalf = 0xfffffffff8000000;  // the 26 leading digits
  static constexpr double kShift = 0x1.8p52;
  static constexpr double kLogTwoHigh = 0x1.62e42fefa3p-1;
  static constexpr double kLogTwoLow = 0x1.3de6af278ece6p-42;
  static constexpr double kLogarithmOfLeast = -746;
  static constexpr double kLogarithmOfMost = 710;
};

template <typename Real>
using BitsOf = typename Format<Real>::Bits;

// A number as a sum of two, the second about as small as the last digit of the first.
template <typename Real>
struct Pair {
  Real high;
  Real low;
};

// The sum and what its rounding left; exact where |a| >= |b| or a = 0.
template <typename Real>
LOSSCLI_HOST_DEVICE Pair<Real> ordered_sum(Real a, Real b) {
  const Real sum = a + b;
  return {sum, b - (sum - a)};
}

// The same for any two numbers.
template <typename Real>
LOSSCLI_HOST_DEVICE Pair<Real> exact_sum(Real a, Real b) {
  const Real sum = a + b;
  const Real other = sum - a;
  return {sum, (a - (sum - other)) + (b - other)};
}

// The leading half of the digits: products of two such numbers are exact.
template <typename Real>
LOSSCLI_HOST_DEVICE Real upper_half(Real x) {
  return bit_cast<Real>(bit_cast<BitsOf<Real>>(x) & Format<Real>::kUpperHalf);
}

// The compiler knows that those of x and -x are the same.
LOSSCLI_HOST_DEVICE float magnitude(float x) { return __builtin_fabsf(x); }
LOSSCLI_HOST_DEVICE double magnitude(double x) { return __builtin_fabs(x); }

template <typename Real>
LOSSCLI_HOST_DEVICE Real with_sign_of(Real sign, Real x) {
  constexpr BitsOf<Real> kSign = ~(~BitsOf<Real>(0) >> 1);
  return bit_cast<Real>(bit_cast<BitsOf<Real>>(x) | (bit_cast<BitsOf<Real>>(sign) & kSign));
}

// Two to the power of an exponent of normal numbers, given in two's complement.
template <typename Real>
LOSSCLI_HOST_DEVICE Real power_of_two(BitsOf<Real> exponent) {
  return bit_cast<Real>((exponent + Format<Real>::kBias) << Format<Real>::kDigits);
}

// The two halves of 2^exponent, for any exponent that a product of two normal numbers reaches.
template <typename Real>
LOSSCLI_HOST_DEVICE Pair<Real> halves_of_power(BitsOf<Real> exponent) {
  constexpr BitsOf<Real> kEven = BitsOf<Real>(1) << 12;  // makes the exponent positive
  const BitsOf<Real> half = ((exponent + kEven) >> 1) - kEven / 2;
  return {power_of_two<Real>(half), power_of_two<Real>(exponent - half)};
}

// A number as 2^exponent * (1 + f), with 1 + f from sqrt(1/2) to sqrt(2).
template <typename Real>
struct Split {
  BitsOf<Real> exponent;
  Real count;  // the exponent as a number
  Real f;
};

// For normal numbers above zero.
template <typename Real>
LOSSCLI_HOST_DEVICE Split<Real> split(Real x) {
  using F = Format<Real>;
  constexpr BitsOf<Real> kOne = F::kBias << F::kDigits;
  constexpr BitsOf<Real> kFraction = (BitsOf<Real>(1) << F::kDigits) - 1;
  const BitsOf<Real> bits = bit_cast<BitsOf<Real>>(x) + (kOne - F::kHalfRoot);
  const BitsOf<Real> biased = bits >> F::kDigits;
  const Real shifted = bit_cast<Real>(bit_cast<BitsOf<Real>>(F::kShift) + biased);
  return {biased - F::kBias, shifted - (F::kShift + Real(F::kBias)),
          bit_cast<Real>((bits & kFraction) + F::kHalfRoot) - Real(1)};
}

// The same for subnormal numbers, too.
template <typename Real>
LOSSCLI_HOST_DEVICE Split<Real> split_any(Real x) {
  constexpr int kUp = Format<Real>::kDigits + 1;
  const bool subnormal = x < std::numeric_limits<Real>::min();
  Split<Real> parts = split(subnormal ? x * power_of_two<Real>(BitsOf<Real>(kUp)) : x);
  parts.count = subnormal ? parts.count - Real(kUp) : parts.count;
  return parts;
}

}  // namespace losscli::vector_math
