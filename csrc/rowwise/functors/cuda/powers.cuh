// Exponentials of logits over the temperature, by how far a logit is below the largest of its row:
// that difference keeps its digits however large the logits are, and that of the largest is 0.
#pragma once

#include <cfloat>
#include <cmath>

#include "rowwise/cuda/state.cuh"

namespace losscli::cuda {

template <typename Real>
struct FunctorPowers;

template <>
struct FunctorPowers<float> {
  float scale;    // -log2(e) / temperature
  float inverse;  // 1 / temperature

  __device__ __forceinline__ explicit FunctorPowers(double temperature)
      : scale(fmaxf(static_cast<float>(-1.4426950408889634 / temperature), -FLT_MAX)),
        inverse(static_cast<float>(1 / temperature)) {}

  static constexpr float kLeast = -FLT_MAX;  // the largest logit where all are -inf

  __device__ __forceinline__ float power(float below) const { return power_of_two(below * scale); }
  __device__ __forceinline__ static float larger(float a, float b) { return fmaxf(a, b); }
};

template <>
struct FunctorPowers<double> {
  double inverse;

  __device__ __forceinline__ explicit FunctorPowers(double temperature)
      : inverse(fmin(1 / temperature, DBL_MAX)) {}

  static constexpr double kLeast = -DBL_MAX;

  __device__ __forceinline__ double power(double below) const { return exp(-below * inverse); }
  __device__ __forceinline__ static double larger(double a, double b) { return fmax(a, b); }
};

}  // namespace losscli::cuda
