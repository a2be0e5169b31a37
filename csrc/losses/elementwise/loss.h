// What the header of every loss is made of.
//
// A loss is a template on Real (float or double), constructed from its parameters as doubles, with
//   static constexpr Signature<operands, parameters> signature
//   Real value(const Real (&x)[operands])
//     the loss of one element; x holds the operands in the order of the signature
//   void gradient(const Real (&x)[operands], Real incoming, Real (&out)[operands])
//     its first derivatives, times the upstream gradient
//   void hessian_product(const Real (&x)[operands], const Real (&v)[operands],
//                        Real (&out)[operands])
//     its second derivatives, times the vector v
// and where it takes logarithms, powers or several divisions
//   static constexpr bool costly = true
//     on a GPU instructions bound it, not memory alone: kernels compute no gradient in vain, and
//     unroll less
// and where parameters select one of several forms (`chosen`)
//   bool is_usual() const
//     whether they select the form of most calls
//   Loss usual_form() const
//     if so, the same loss, but with constants for what selects: the host compiles loops for it
//     besides, which compute nothing of the other forms
// It runs on host and device, without branches that a vectoriser cannot turn into selects; so a
// parameter that selects a form is kept as a Real and goes through `chosen`, for GCC does not
// vectorise a loop that selects by a bool of the loss. Names, defaults and domains are in the
// loss's Python file, from which the operator is registered; what stands here is checked against it
// when a library is loaded.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/math.h"
#include "core/platform.h"

namespace losscli {

template <typename Real>
constexpr Real kInfinity = std::numeric_limits<Real>::infinity();
template <typename Real>
constexpr Real kNotANumber = std::numeric_limits<Real>::quiet_NaN();

struct Parameter {
  const char* name;
  double minimum;
  double maximum = kInfinity<double>;
  bool open = false;       // the ends are no values themselves
  bool is_switch = false;  // 0 or 1, for off or on
};

constexpr Parameter make_switch(const char* name) { return {name, 0.0, 1.0, false, true}; }

template <int operand_count, int parameter_count>
struct Signature {
  static constexpr int operands = operand_count;
  static constexpr int parameter_total = parameter_count;
  std::array<const char*, operand_count> operand_names;
  std::array<Parameter, parameter_count> parameters;
};

template <typename Loss, typename = void>
constexpr bool is_costly = false;
template <typename Loss>
constexpr bool is_costly<Loss, std::void_t<decltype(Loss::costly)>> = Loss::costly;

template <typename Loss, typename = void>
constexpr bool has_usual_form = false;
template <typename Loss>
constexpr bool
    has_usual_form<Loss, std::void_t<decltype(std::declval<const Loss&>().usual_form())>> = true;

// One of two forms, which a parameter of the loss selects: the first where `flag` is 1. The host
// computes both, for the vectoriser, unless the flag is a constant; the device, whose threads all
// take the same branch, only the selected one.
template <typename Real, typename First, typename Second>
LOSSCLI_HOST_DEVICE Real chosen(Real flag, First first, Second second) {
#ifdef __CUDA_ARCH__
  if (flag > Real(0)) return first();
  return second();
#else
  const Real one = first(), other = second();
  return flag > Real(0) ? one : other;
#endif
}

// Rounded once in float, so that a difference near zero keeps its digits; twice in double, as the
// float64 formula that defines a loss rounds.
LOSSCLI_HOST_DEVICE float multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
LOSSCLI_HOST_DEVICE double multiply_add(double a, double b, double c) { return a * b + c; }

LOSSCLI_HOST_DEVICE float absolute(float x) { return __builtin_fabsf(x); }
LOSSCLI_HOST_DEVICE double absolute(double x) { return __builtin_fabs(x); }

template <typename Real>
LOSSCLI_HOST_DEVICE Real finite_or_zero(Real x) {
  return absolute(x) < kInfinity<Real> ? x : Real(0);
}

// What the rounding of a difference left.
LOSSCLI_HOST_DEVICE float rest_of(float a, float b, float difference) {
  const float seen = difference - a;
  return (a - (difference - seen)) - (b + seen);
}

// The same where an exponential of the difference would multiply it; of float64 none, as in the
// formula that defines a loss.
LOSSCLI_HOST_DEVICE float lost(float a, float b, float difference) {
  return finite_or_zero(rest_of(a, b, difference));
}
LOSSCLI_HOST_DEVICE double lost(double, double, double) { return 0; }

// The larger of `x` and zero; NaN of NaN. One instruction where the GPU has it, which no comparison
// is made into.
LOSSCLI_HOST_DEVICE float at_least_zero(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(larger) : "f"(x));
  return larger;
#else
  return x < 0 ? 0 : x;
#endif
}
LOSSCLI_HOST_DEVICE double at_least_zero(double x) { return x < 0 ? 0 : x; }

}  // namespace losscli
