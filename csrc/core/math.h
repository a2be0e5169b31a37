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
#else
#include "core/vector_math.h"
#endif

namespace losscli {

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

// 1 / (1 + e^-x), without e to a large number.
template <typename Real>
LOSSCLI_HOST_DEVICE Real sigmoid(Real x) {
  const Real power = exponential(x > Real(0) ? -x : x);
  return (x > Real(0) ? Real(1) : power) / (Real(1) + power);
}

// log(1 + e^x), the same way.
template <typename Real>
LOSSCLI_HOST_DEVICE Real softplus(Real x) {
  return (x > Real(0) ? x : Real(0)) + log_of_one_plus(exponential(x > Real(0) ? -x : x));
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

#endif

}  // namespace losscli
