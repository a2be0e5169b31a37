// Exponentials of logits over the temperature, by how far a logit is below the largest of its row:
// that difference keeps its digits however large the logits are, and that of the largest is 0.
#pragma once

#include <cfloat>
#include <cmath>

#include "rows/cuda/state.cuh"

namespace losscli::cuda {

template <typename Real, typename Stored>
struct LogitPowers;

template <typename Stored>
struct LogitPowers<float, Stored> {
  float scale, low;  // log2(e) / temperature, in two parts
  float inverse;     // 1 / temperature
  float unit;        // 1 / scale

  LOSSCLI_HOST_DEVICE explicit LogitPowers(double temperature)
      : inverse(static_cast<float>(1 / temperature)) {
    const double exact = fmin(1.4426950408889634 / temperature, double{FLT_MAX});
    scale = static_cast<float>(exact);
    low = static_cast<float>(exact - scale);
    unit = 1.0f / scale;
  }

  static constexpr float kLeast = -FLT_MAX;  // the largest logit where all are -inf

  // Of a float with what the rounding of its exponent loses, which for an exponent of -40 is 8
  // units in the last place.
  __device__ __forceinline__ float power(float below) const {
    if constexpr (kShort) {
      return power_of_two(-(below * scale));
    } else {
      float exponent = -(below * scale);
      float lost = __fmaf_rn(below, -scale, -exponent);
      // Beyond, where all powers are 0, the exponent may be infinite, and what it loses NaN.
      lost = exponent < -200.0f ? 0.0f : __fmaf_rn(below, -low, lost);
      const float power = power_of_two(exponent);
      return __fmaf_rn(power * lost, 0.69314718f, power);
    }
  }

  // In 16 bits, near to 0: one instruction for the exponent, from a reference in place of the
  // largest logit. The reference's rounding is that of all powers of a row alike.
  static constexpr bool kShort = sizeof(Stored) == 2;

  __device__ __forceinline__ bool is_near(float top) const {
    return kShort && fabsf(top * scale) < 1024.0f;
  }
  __device__ __forceinline__ float reference(float top) const { return top * scale; }
  __device__ __forceinline__ float exponent(float x, float reference) const {
    return __fmaf_rn(x, scale, -reference);
  }
  __device__ __forceinline__ float power_beyond(float x, float reference) const {
    return power_of_two(exponent(x, reference));
  }
  // How far the logarithm of a power of the largest logit is from 0.
  __device__ __forceinline__ float beyond(float top) const {
    return is_near(top) ? __fmaf_rn(top, scale, -reference(top)) : 0.0f;
  }

  // Raises sums for one largest logit to those for another.
  __device__ __forceinline__ float raising(float from, float to) const {
    if constexpr (kShort) return power_of_two((beyond(to) - beyond(from)) - (to - from) * scale);
    return power(to - from);
  }
  __device__ __forceinline__ static float larger(float a, float b) { return fmaxf(a, b); }
};

template <typename Stored>
struct LogitPowers<double, Stored> {
  double inverse;

  LOSSCLI_HOST_DEVICE explicit LogitPowers(double temperature)
      : inverse(fmin(1 / temperature, DBL_MAX)) {}

  static constexpr double kLeast = -DBL_MAX;
  static constexpr bool kShort = false;

  __device__ __forceinline__ double power(double below) const { return exp(-below * inverse); }
  __device__ __forceinline__ double raising(double from, double to) const {
    return power(to - from);
  }
  __device__ __forceinline__ static double larger(double a, double b) { return fmax(a, b); }
};

}  // namespace losscli::cuda
