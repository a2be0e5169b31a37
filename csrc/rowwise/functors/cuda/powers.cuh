// Exponentials of logits over the temperature, relative to a reference near the largest.
#pragma once

#include <cfloat>
#include <cmath>

#include "rowwise/cuda/state.cuh"

namespace losscli::cuda {

// In float: powers of two, whose references are whole numbers, so that those of two differ by a
// power of two.
template <typename Stored, typename Real>
struct FunctorPowers {
  RowScale scale;
  float inverse;  // 1 / temperature

  __device__ __forceinline__ explicit FunctorPowers(double temperature)
      : scale(temperature), inverse(static_cast<float>(1 / temperature)) {}

  static constexpr float kMost = FLT_MAX;
  static constexpr float kLeast = -FLT_MAX;  // the largest logit where all are -inf

  __device__ __forceinline__ float reference(float top) const { return scale.reference(top); }
  __device__ __forceinline__ bool is_exact(float reference) const {
    return sizeof(Stored) == 2 || scale.is_exact(reference);
  }
  template <bool exact>
  __device__ __forceinline__ float power(float x, float reference) const {
    return exact ? scale.template power<Stored>(x, reference) : scale.far_power(x, reference);
  }
  __device__ __forceinline__ float any_power(float x, float reference) const {
    return scale.template any_power<Stored>(x, reference);
  }
  __device__ __forceinline__ float between(float from, float to) const {
    return power_of_two(from - to);
  }
  // The logarithm of the sum of e^((x - top) / temperature), of a sum of powers; with the scale
  // that these were computed with.
  __device__ __forceinline__ float logarithm(float sum, float top, float reference) const {
    float above = __fmaf_rn(top, scale.high, -reference);
    if (sizeof(Stored) == 4 && scale.is_exact(reference)) above = __fmaf_rn(top, scale.low, above);
    return logf(sum) - above * 0.693147181f;
  }
  __device__ __forceinline__ static float larger(float a, float b) { return fmaxf(a, b); }
};

template <typename Stored>
struct FunctorPowers<Stored, double> {
  double temperature, inverse;

  __device__ __forceinline__ explicit FunctorPowers(double temperature)
      : temperature(temperature), inverse(1 / temperature) {}

  static constexpr double kMost = DBL_MAX;
  static constexpr double kLeast = -DBL_MAX;

  __device__ __forceinline__ double reference(double top) const {
    return fmax(top / temperature, -DBL_MAX);
  }
  __device__ __forceinline__ bool is_exact(double) const { return true; }
  template <bool>
  __device__ __forceinline__ double power(double x, double reference) const {
    return exp(x / temperature - reference);
  }
  __device__ __forceinline__ double any_power(double x, double reference) const {
    return power<true>(x, reference);
  }
  __device__ __forceinline__ double between(double from, double to) const { return exp(from - to); }
  __device__ __forceinline__ double logarithm(double sum, double, double) const { return log(sum); }
  __device__ __forceinline__ static double larger(double a, double b) { return fmax(a, b); }
};

}  // namespace losscli::cuda
