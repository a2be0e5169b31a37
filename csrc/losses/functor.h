// What every loss's functor is made of.
//
// A functor is a template on Real (float or double), constructed from its parameters as doubles,
// with for one pair of elements
//   Real value(Real input, Real target)                              the loss
//   Gradient<Real> gradient(Real input, Real target, Real incoming)  its first derivatives,
//                                                                    times the incoming gradient
//   Hessian<Real> hessian(Real input, Real target)                   its second derivatives
// and `static constexpr std::array<Parameter, n> parameters`. It runs on host and device, without
// branches a vectoriser cannot turn into selects.
#pragma once

#include <array>

#ifdef __CUDACC__
#define LOSSCLI_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define LOSSCLI_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace losscli {

struct Parameter {
  const char* name;
  double minimum;  // inclusive
};

template <typename Real>
struct Gradient {
  Real input;
  Real target;
};

template <typename Real>
struct Hessian {
  Real input_input;
  Real input_target;
  Real target_target;
};

// Rounded once in float, so that a difference near zero keeps its digits; twice in double, as the
// float64 formula that defines a loss rounds.
LOSSCLI_HOST_DEVICE float multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
LOSSCLI_HOST_DEVICE double multiply_add(double a, double b, double c) { return a * b + c; }

LOSSCLI_HOST_DEVICE float absolute(float x) { return __builtin_fabsf(x); }
LOSSCLI_HOST_DEVICE double absolute(double x) { return __builtin_fabs(x); }

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
