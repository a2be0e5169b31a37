// Exponential, logarithm and what is made of them, for the CPU: without calls, branches or tables,
// so that compilers vectorise the loops over them; the device has CUDA's own (core/math.h).
//
// The methods are the usual ones: the argument is reduced with constants in two parts (Cody and
// Waite), a polynomial does the rest, and what sums round off is kept where it would show. A
// logarithm is that of 1 + f as a series in f / (2 + f), which is odd (as in Tang, ACM TOMS 1990).
// No product is fused into a sum, whatever the processor has: every processor, every width of
// vectors and the last elements of a loop give the same bits. That needs -ffp-contract=off and no
// flag that lets the compiler reorder sums.
//
// The polynomials are minimax, by Remez's algorithm in 60 digits, their coefficients then rounded.
// The error beside each is that of the polynomial, before it is scaled down by the power of the
// argument in front of it.
#pragma once

#include <limits>

#include "core/float_parts.h"
#include "core/platform.h"
#include "core/polynomial.h"

namespace losscli::vector_math {

// (e^x - 1 - x - x^2 / 2) / x^3 for |x| <= log(2) / 2, within 2^-26.9.
LOSSCLI_HOST_DEVICE float exponential_series(float x) {
  return polynomial(x, 0x1.555556p-3f, 0x1.55551ap-5f, 0x1.1110ccp-7f, 0x1.6d1146p-10f,
                    0x1.a151bcp-13f);
}
// Within 2^-56.8.
LOSSCLI_HOST_DEVICE double exponential_series(double x) {
  return polynomial(x, 0x1.5555555555556p-3, 0x1.5555555555556p-5, 0x1.11111111109adp-7,
                    0x1.6c16c16c15dbbp-10, 0x1.a01a01a7c90e2p-13, 0x1.a01a01a93bcfdp-16,
                    0x1.71de0d9b54849p-19, 0x1.27e4d4c40d23fp-22, 0x1.af38d6c73fa7ap-26,
                    0x1.1f7f45b3e0a0dp-29);
}

// (log((1 + s) / (1 - s)) / s - 2) / s^2 of the square of s, for 1 + f from sqrt(1/2) to sqrt(2),
// within 2^-22.4.
LOSSCLI_HOST_DEVICE float logarithm_series(float square) {
  return polynomial(square, 0x1.55555cp-1f, 0x1.997cp-2f, 0x1.2eececp-2f);
}
// Within 2^-51.5.
LOSSCLI_HOST_DEVICE double logarithm_series(double square) {
  return polynomial(square, 0x1.5555555555558p-1, 0x1.99999999951f7p-2, 0x1.2492492e08d4cp-2,
                    0x1.c71c62c9f3f15p-3, 0x1.7462bbf18373cp-3, 0x1.39fd7df70c0c7p-3,
                    0x1.2b629afe7e4ebp-3);
}

// (tanh(x) / x - 1) / x^2 of the square of x, for |x| <= 0.55, within 2^-26.2.
LOSSCLI_HOST_DEVICE float tangent_series(float square) {
  return polynomial(square, -0x1.555554p-2f, 0x1.110ff4p-3f, -0x1.b9a2d6p-5f, 0x1.5d3cdcp-6f,
                    -0x1.b1e478p-8f);
}
// Within 2^-56.9.
LOSSCLI_HOST_DEVICE double tangent_series(double square) {
  return polynomial(square, -0x1.5555555555555p-2, 0x1.111111111103cp-3, -0x1.ba1ba1b9ffcbcp-5,
                    0x1.664f487768180p-6, -0x1.226e32fe27913p-7, 0x1.d6d33be4bc0dap-9,
                    -0x1.7d97f7e83176fp-10, 0x1.34c71a13394eap-11, -0x1.ec20a42586b1dp-13,
                    0x1.652f1af8e69f0p-14, -0x1.5a2a294b70f9ap-16);
}

// e^x as 2^exponent * (1 + rest + tail), the tail small beside the rest.
template <typename Real>
struct ReducedExponential {
  BitsOf<Real> exponent;
  Real rest;
  Real tail;
};

// For an argument within the logarithms of least and most, and a small number to add to it.
template <typename Real>
LOSSCLI_HOST_DEVICE ReducedExponential<Real> reduce_exponential(Real x, Real low = 0) {
  using F = Format<Real>;
  const Real shifted = x * Real(1.4426950408889634074) + F::kShift;
  const Real count = shifted - F::kShift;
  const Real left = x - count * F::kLogTwoHigh;
  const Real taken = count * F::kLogTwoLow - low;
  const Real rest = left - taken;
  const Real rounded = (left - rest) - taken;
  const Real series = rest * rest * (Real(0.5) + rest * exponential_series(rest));
  return {bit_cast<BitsOf<Real>>(shifted) - bit_cast<BitsOf<Real>>(F::kShift), rest,
          series + rounded};
}

// A reduced exponential without its power of two.
template <typename Real>
LOSSCLI_HOST_DEVICE Pair<Real> significand(const ReducedExponential<Real>& reduced) {
  const Pair<Real> sum = ordered_sum(Real(1), reduced.rest);
  return ordered_sum(sum.high, sum.low + reduced.tail);
}

// e^(x + low), with what the rounding of its first part left; for x up to the logarithm of most.
template <typename Real>
LOSSCLI_HOST_DEVICE Pair<Real> exponential_pair(Real x, Real low = 0) {
  const Real bounded = x < Format<Real>::kLogarithmOfLeast ? Format<Real>::kLogarithmOfLeast : x;
  const ReducedExponential<Real> reduced = reduce_exponential(bounded, low);
  const Pair<Real> power = significand(reduced);
  const Pair<Real> scale = halves_of_power<Real>(reduced.exponent);
  return {power.high * scale.high * scale.low, power.low * scale.high * scale.low};
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real exponential(Real x, Real low = 0) {
  using F = Format<Real>;
  const Real bounded = x > F::kLogarithmOfMost ? F::kLogarithmOfMost : x;
  return exponential_pair(bounded, low).high;
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real exponential_minus_one(Real x) {
  using F = Format<Real>;
  constexpr Real kMinusOne = -2 - F::kDigits;  // e to it is lost beside 1
  const Real above = x < kMinusOne ? kMinusOne : x;
  const ReducedExponential<Real> reduced =
      reduce_exponential(above > F::kLogarithmOfMost ? F::kLogarithmOfMost : above);
  // Half of the result, since twice of it may be the only one in range.
  const Real scale = power_of_two<Real>(reduced.exponent - 1);
  const Real less = scale - Real(0.5);
  const Real rounded = (scale - less) - Real(0.5);
  const Pair<Real> sum = ordered_sum(less, scale * reduced.rest);
  const Real half = sum.high + (sum.low + (scale * reduced.tail + rounded));
  return magnitude(x) < std::numeric_limits<Real>::epsilon() / 4 ? x : half + half;
}

// log(2^count * (1 + f + low)).
template <typename Real>
LOSSCLI_HOST_DEVICE Pair<Real> logarithm_pair(Real count, Real f, Real low) {
  using F = Format<Real>;
  const Real s = f / (Real(2) + f);
  const Real square = s * s;
  const Real half_square = Real(0.5) * f * f;
  const Real rest = s * (half_square + square * logarithm_series(square));
  const Pair<Real> sum = ordered_sum(count * F::kLogTwoHigh, f);
  return {sum.high, sum.low - (half_square - (rest + (count * F::kLogTwoLow + low)))};
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real logarithm(Real x) {
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();
  const Split<Real> parts = split_any(x);
  const Pair<Real> pair = logarithm_pair(parts.count, parts.f, Real(0));
  const Real at_most_zero = x == Real(0) ? -kInfinity : kNaN;
  const Real finite = x > Real(0) ? pair.high + pair.low : at_most_zero;
  return x < kInfinity ? finite : x;
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real log_of_one_plus(Real x) {
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();
  const Pair<Real> sum = exact_sum(Real(1), x);
  const Split<Real> parts = split(sum.high);
  // By 2^-exponent in two steps: the first is 0 where the exponent is out of its range.
  const Real rest = sum.low * power_of_two<Real>(1 - parts.exponent) * Real(0.5);
  const Pair<Real> fraction = ordered_sum(parts.f, rest);
  const Pair<Real> pair = logarithm_pair(parts.count, fraction.high, fraction.low);
  const Real at_most_minus_one = x == Real(-1) ? -kInfinity : kNaN;
  const Real finite = x > Real(-1) ? pair.high + pair.low : at_most_minus_one;
  const Real inside = magnitude(x) < std::numeric_limits<Real>::epsilon() / 4 ? x : finite;
  return x < kInfinity ? inside : x;
}

// e / (1 + e).
template <typename Real>
struct Fraction {
  Pair<Real> whole;  // 1 + e
  Real quotient;     // as rounded

  LOSSCLI_HOST_DEVICE explicit Fraction(Pair<Real> e)
      : whole(ordered_sum(Real(1), e.high)), quotient(e.high / whole.high) {
    whole.low += e.low;
  }

  // What a change of e makes of the quotient: 1 / (1 + e) is 1 - quotient.
  LOSSCLI_HOST_DEVICE Real of(Real change) const { return change * (Real(1) - quotient); }
};

// 1 - part, in one rounding.
template <typename Real>
LOSSCLI_HOST_DEVICE Real complement(Pair<Real> part) {
  const Pair<Real> sum = ordered_sum(Real(1), -part.high);
  return sum.high + (sum.low - part.low);
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real sigmoid(Real x) {
  const Pair<Real> power = exponential_pair(-magnitude(x));
  const Fraction<Real> fraction(power);
  // The leading half of the quotient, and a rest as exact as the division.
  const Real half = upper_half(fraction.quotient);
  const Real divisor = upper_half(fraction.whole.high);
  const Real divided = (power.high - half * divisor) - half * (fraction.whole.high - divisor);
  const Pair<Real> tail{half, fraction.of(divided + (power.low - half * fraction.whole.low))};
  return x > Real(0) ? complement(tail) : tail.high + tail.low;
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real hyperbolic_tangent(Real x) {
  const Real size = magnitude(x);
  const Real square = x * x;
  const Real near = size + size * (square * tangent_series(square));
  // 1 - 2 / (1 + e^2x), which is 1 beyond the bound.
  constexpr Real kBound = 2 + Format<Real>::kDigits;
  const ReducedExponential<Real> reduced =
      reduce_exponential(Real(-2) * (size > kBound ? kBound : size));
  const Pair<Real> power = significand(reduced);
  const Real scale = power_of_two<Real>(reduced.exponent);
  const Pair<Real> e{power.high * scale, power.low * scale};
  const Fraction<Real> fraction(e);
  const Real quotient = fraction.quotient;
  const Real rest = fraction.of(e.low - quotient * fraction.whole.low);
  const Real far = complement(Pair<Real>{quotient + quotient, rest + rest});
  return with_sign_of(x, size < Real(0.55) ? near : far);
}

// log(1 + e^x).
template <typename Real>
LOSSCLI_HOST_DEVICE Real softplus(Real x) {
  constexpr Real kAlone = 2 + Format<Real>::kDigits;  // beside it e^-x is lost
  const Pair<Real> power = exponential_pair(-magnitude(x));
  const Pair<Real> whole = ordered_sum(Real(1), power.high);
  const Split<Real> parts = split(whole.high);
  const Real scale = power_of_two<Real>(-parts.exponent);
  const Pair<Real> fraction = ordered_sum(parts.f, whole.low * scale);
  const Pair<Real> pair =
      logarithm_pair(parts.count, fraction.high, fraction.low + power.low * scale);
  const Pair<Real> sum = exact_sum(x > Real(0) ? x : Real(0), pair.high);
  return x > kAlone ? x : sum.high + (sum.low + pair.low);
}

// base^(exponent + exponent_rest) for a finite base of at least zero; NaN for others. The logarithm
// has a few digits more than Real, so that the result is within 1 unit in the last place for
// exponents up to 16.
template <typename Real>
LOSSCLI_HOST_DEVICE Real power(Real base, Real exponent, Real exponent_rest = 0) {
  using F = Format<Real>;
  constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
  constexpr Real kNaN = std::numeric_limits<Real>::quiet_NaN();
  const Split<Real> parts = split_any(base);
  // The quotient f / (2 + f) in two parts, as in sigmoid.
  const Pair<Real> whole = ordered_sum(Real(2), parts.f);
  const Real reciprocal = Real(1) / whole.high;
  const Real high = upper_half(parts.f * reciprocal);
  const Real divisor = upper_half(whole.high);
  const Real rest = (whole.high - divisor) + whole.low;
  const Real low = ((parts.f - high * divisor) - high * rest) * reciprocal;
  const Real s = high + low;
  const Real square = s * s;
  const Real series = s * (square * logarithm_series(square));
  const Pair<Real> sum = ordered_sum(parts.count * F::kLogTwoHigh, high + high);
  const Pair<Real> logarithm =
      ordered_sum(sum.high, sum.low + ((low + low) + (series + parts.count * F::kLogTwoLow)));
  // Times the exponent: the product of the leading halves is exact.
  const Real half = upper_half(logarithm.high);
  const Real leading = upper_half(exponent);
  const Real product = leading * half;
  const Real remainder = (exponent - leading) * half +
                         exponent * ((logarithm.high - half) + logarithm.low) +
                         exponent_rest * logarithm.high;
  const bool inside = product > F::kLogarithmOfLeast && product < F::kLogarithmOfMost;
  const Real finite = exponential(product, inside ? remainder : Real(0));
  const Real at_zero = exponent > Real(0) ? Real(0) : kInfinity;
  const Real at_most_zero = base == Real(0) ? at_zero : kNaN;
  const Real result = base > Real(0) ? finite : at_most_zero;
  return exponent == Real(0) ? Real(1) : result;
}

}  // namespace losscli::vector_math
