// Exponential, logarithm and what is made of them, for float and double, on host and device: on the
// host functions that compilers vectorise, on the device CUDA's own.
//
// Right within these units in the last place (ULP), measured over all floats and many doubles:
//                           float  double
//   exponential              0.8     0.8
//   exponential_minus_one    1.1     1.1
//   logarithm                0.9     0.9
//   log_of_one_plus          1.0     1.0
//   hyperbolic_tangent       0.9     0.9
//   sigmoid                  0.8     0.8
//   softplus                 1.1     1.1
//   power                    1.0     1.0    with exponents up to 16
// and so never more than one number away from the correctly rounded result. That is the host; on
// the device sigmoid and softplus are within 3, and CUDA's functions within what its programming
// guide says: 2, and powers 8.
// Subnormal results and arguments, infinities and the sign of zero are as in the C library; NaN
// stays NaN.
#pragma once

#include "core/platform.h"

#ifdef __CUDA_ARCH__
#include <cmath>

#include "core/polynomial.h"
#else
#include "core/vector_math.h"
#endif

namespace losscli {

// A quotient, and the logarithms of a probability p and of 1 - p. Of float the device has its own.
template <typename Real>
LOSSCLI_HOST_DEVICE Real quotient(Real a, Real b) {
  return a / b;
}
template <typename Real>
LOSSCLI_HOST_DEVICE void log_probabilities(Real p, Real& of_p, Real& of_rest);

// a * b + c: on a GPU with one rounding, which is an instruction less.
template <typename Real>
LOSSCLI_HOST_DEVICE Real multiply_add(Real a, Real b, Real c) {
#ifdef __CUDA_ARCH__
  return ::fma(a, b, c);
#else
  return a * b + c;
#endif
}

#ifdef __CUDA_ARCH__

LOSSCLI_HOST_DEVICE float exponential(float x) { return ::expf(x); }
LOSSCLI_HOST_DEVICE double exponential(double x) { return ::exp(x); }
LOSSCLI_HOST_DEVICE float exponential_minus_one(float x) { return ::expm1f(x); }
LOSSCLI_HOST_DEVICE double exponential_minus_one(double x) { return ::expm1(x); }
LOSSCLI_HOST_DEVICE float logarithm(float x) { return ::logf(x); }
LOSSCLI_HOST_DEVICE double logarithm(double x) { return ::log(x); }
LOSSCLI_HOST_DEVICE float log_of_one_plus(float x) { return ::log1pf(x); }
LOSSCLI_HOST_DEVICE double log_of_one_plus(double x) { return ::log1p(x); }
LOSSCLI_HOST_DEVICE float hyperbolic_tangent(float x) { return ::tanhf(x); }
LOSSCLI_HOST_DEVICE double hyperbolic_tangent(double x) { return ::tanh(x); }

// a / b where neither it nor 1 / b overflows or is subnormal: without the checks and the branch of
// a division, and nearly always rounded as it rounds.
LOSSCLI_HOST_DEVICE float quotient(float a, float b) {
  const float reciprocal = ::__fdividef(1.0f, b);
  const float found = a * reciprocal;
  return __builtin_fmaf(__builtin_fmaf(-b, found, a), reciprocal, found);
}

// e^-|x|, which does not overflow.
LOSSCLI_HOST_DEVICE float exponential_tail(float x) { return exponential(-__builtin_fabsf(x)); }
LOSSCLI_HOST_DEVICE double exponential_tail(double x) { return exponential(-__builtin_fabs(x)); }

// 1 / (1 + e^-x).
template <typename Real>
LOSSCLI_HOST_DEVICE Real sigmoid(Real x) {
  const Real power = exponential_tail(x);
  return quotient(x > Real(0) ? Real(1) : power, Real(1) + power);
}

// The same with what the rounding of the denominator lost: a unit in the last place less.
template <typename Real>
LOSSCLI_HOST_DEVICE Real careful_sigmoid(Real x) {
  return sigmoid(x);
}
LOSSCLI_HOST_DEVICE float careful_sigmoid(float x) {
  const float power = exponential_tail(x), numerator = x > 0.0f ? 1.0f : power;
  const float denominator = 1.0f + power, lost = power - (denominator - 1.0f);
  const float reciprocal = ::__fdividef(1.0f, denominator);
  const float found = numerator * reciprocal;
  const float rest = __builtin_fmaf(-denominator, found, numerator);
  return __builtin_fmaf(__builtin_fmaf(-lost, found, rest), reciprocal, found);
}

// log(1 + e^-|x|). In float x - log(1 + x) over x^2 up to 1 is a minimax polynomial, within 2^-30
// of the logarithm: with what it rounds off within 1.3 ULP, for half of the instructions of
// log_of_one_plus.
LOSSCLI_HOST_DEVICE float softplus_tail(float x) {
  const float power = exponential_tail(x);
  const float series = polynomial(power, 0x1.fffff8p-2f, -0x1.5553a6p-2f, 0x1.ffc41ep-3f,
                                  -0x1.978274p-3f, 0x1.4a541cp-3f, -0x1.fea6fap-4f, 0x1.544516p-4f,
                                  -0x1.57e8a4p-5f, 0x1.beabe8p-7f, -0x1.0fb398p-9f);
  return __builtin_fmaf(-power * power, series, power);
}
LOSSCLI_HOST_DEVICE double softplus_tail(double x) { return log_of_one_plus(exponential_tail(x)); }

// log(x) of a quotient and how far it is beyond 1, which has digits that the quotient has lost. In
// float (log(1 + f) - f) / f^2 from -1/4 to 1/2 is a minimax polynomial; without branches.
LOSSCLI_HOST_DEVICE float logarithm_of_quotient(float x, float beyond) {
  const int bits = __float_as_int(x);
  const int exponent = (bits - 0x3f400000) & 0xff800000;
  const float f = exponent == 0 ? beyond : __int_as_float(bits - exponent) - 1.0f;
  const float series =
      polynomial(f, -0.5f, 0x1.5555a0p-2f, -0x1.0000a4p-2f, 0x1.996bfap-3f, -0x1.54d848p-3f,
                 0x1.2835fap-3f, -0x1.0e219cp-3f, 0x1.b2a2ecp-4f, -0x1.7c84e0p-5f);
  const float near = __builtin_fmaf(f * f, series, f);
  return __builtin_fmaf(static_cast<float>(exponent), 0x1.62e43p-24f, near);
}
LOSSCLI_HOST_DEVICE double logarithm_of_quotient(double x, double beyond) {
  return x < 0.5 ? logarithm(x) : log_of_one_plus(beyond);
}

// log(1 + e^x).
template <typename Real>
LOSSCLI_HOST_DEVICE Real softplus(Real x) {
  return (x > Real(0) ? x : Real(0)) + softplus_tail(x);
}

// log(p) and log(1 - p) of a probability, of which in float only the one below -log(2) takes a
// logarithm; NaN of a p outside [0, 1].
LOSSCLI_HOST_DEVICE void log_probabilities(float p, float& of_p, float& of_rest) {
  const bool low = p < 0.5f;
  const float less = low ? p : 1.0f - p;
  const float far = logarithm(less);
  // log(1 - less): -(log(1 - q) + q) / q^2 up to 1/2 by a minimax polynomial, within 2^-28 of the
  // logarithm.
  const float series =
      polynomial(less, 0x1.00001ep-1f, 0x1.5542acp-2f, 0x1.01ef0cp-2f, 0x1.67d0b4p-3f,
                 0x1.5d39fap-2f, -0x1.30d15ep-1f, 0x1.fa0746p+0f, -0x1.3dbb4ep+1f, 0x1.bef4e2p+0f);
  const float near = -__builtin_fmaf(less * less, series, less);
  of_p = low ? far : near;
  of_rest = low ? near : far;
}

// base^(exponent + rest) for a finite base of at least zero, where the rest is what the rounding of
// the exponent left.
LOSSCLI_HOST_DEVICE float power(float base, float exponent, float rest = 0) {
  const float result = ::powf(base, exponent);
  return rest == 0 || !(base > 0) ? result : result + result * (rest * logarithm(base));
}
LOSSCLI_HOST_DEVICE double power(double base, double exponent, double rest = 0) {
  const double result = ::pow(base, exponent);
  return rest == 0 || !(base > 0) ? result : result + result * (rest * logarithm(base));
}

#else

using vector_math::exponential_minus_one;
using vector_math::hyperbolic_tangent;
using vector_math::log_of_one_plus;
using vector_math::logarithm;
using vector_math::power;
using vector_math::sigmoid;
using vector_math::softplus;

template <typename Real>
LOSSCLI_HOST_DEVICE Real exponential(Real x) {
  return vector_math::exponential(x);
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real careful_sigmoid(Real x) {
  return sigmoid(x);
}

// e^-|x|, written as sigmoid has it, so that compilers compute it once for both.
template <typename Real>
LOSSCLI_HOST_DEVICE Real exponential_tail(Real x) {
  return vector_math::exponential_pair(-vector_math::magnitude(x)).high;
}

template <typename Real>
LOSSCLI_HOST_DEVICE Real softplus_tail(Real x) {
  return log_of_one_plus(exponential_tail(x));
}

// Both, for the vectoriser.
template <typename Real>
LOSSCLI_HOST_DEVICE Real logarithm_of_quotient(Real x, Real beyond) {
  const Real far = logarithm(x), near = log_of_one_plus(beyond);
  return x < Real(0.5) ? far : near;
}

#endif

template <typename Real>
LOSSCLI_HOST_DEVICE void log_probabilities(Real p, Real& of_p, Real& of_rest) {
  of_p = logarithm(p);
  of_rest = log_of_one_plus(-p);
}

}  // namespace losscli
