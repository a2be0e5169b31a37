// Rows of whose loss each class has a share (label smoothing), and rows of bent logits (softcap):
// what the kernels that read a row once have of them instead of a RowScale and a RowState.
//
// Here the target's logit is one of those in `top`, and no element is replaced by -inf, which would
// be a logit as any other: vectors that are not to be counted are left out by a bit each.
#pragma once

#include "rows/cross_entropy.h"
#include "rows/cuda/policies.h"
#include "rows/cuda/state.cuh"

namespace losscli::cuda {

// Logits as they are.
struct SmoothedScale : RowScale {
  __device__ __forceinline__ explicit SmoothedScale(const RowArguments& arguments)
      : RowScale(arguments.parameters[kTemperature]) {}

  __device__ __forceinline__ float bend(float x) const { return x; }
  __device__ __forceinline__ float slope(float) const { return 1; }
  // What the difference of two logits is in the exponent.
  __device__ __forceinline__ double unit() const {
    return (static_cast<double>(high) + low) * 0.6931471805599453;
  }

  // The power of a logit, and how far it is below a bent one.
  template <bool near, typename Stored>
  __device__ __forceinline__ float measure(float x, float reference, float top,
                                           float& below) const {
    below = top - x;
    return near ? power<Stored>(x, reference) : far_power(x, reference);
  }

  template <bool near, typename Stored>
  __device__ __forceinline__ float gradient(float x, float reference,
                                            const RowFactors& factors) const {
    const float p = near ? power<Stored>(x, reference) : far_power(x, reference);
    return __fmaf_rn(p, factors.all, -factors.share);
  }
  template <typename Stored>
  __device__ __forceinline__ float any_gradient(float x, float reference,
                                                const RowFactors& factors) const {
    return is_near<Stored>(reference) ? gradient<true, Stored>(x, reference, factors)
                                      : gradient<false, Stored>(x, reference, factors);
  }
};

// Logits of 16 bits that a softcap of up to kMostCap bends: cap * tanh(z) = cap - 2 * cap * r,
// where r = 1 / (1 + exp(2 * z)) and z = x / (temperature * cap). The error of r is some 2^-23,
// which makes one of cap * 2^-22 in the exponent: too much for float32. That of tanh.approx is
// 2^-11, which is too much for 16 bits as well.
struct CappedScale {
  float inside;     // 2 * log2(e) / (temperature * cap)
  float cap, bent;  // the cap, and what it is in powers of two

  static constexpr float kUnit = 1.4426950408889634f;

  __device__ __forceinline__ explicit CappedScale(const RowArguments& arguments)
      : inside(static_cast<float>(2.8853900817779268 / (arguments.parameters[kTemperature] *
                                                        arguments.parameters[kSoftcap]))),
        cap(static_cast<float>(arguments.parameters[kSoftcap])),
        bent(cap * kUnit) {}

  __device__ __forceinline__ static float inverse(float x) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
  }
  __device__ __forceinline__ float rest(float x) const {
    return inverse(power_of_two(x * inside) + 1.0f);
  }
  __device__ __forceinline__ float bend(float x) const { return __fmaf_rn(rest(x), -2 * cap, cap); }
  // The derivative of the bent logit, but for the temperature: 1 - tanh(z)^2 with all its digits.
  __device__ __forceinline__ static float slope(float exponential, float rest) {
    return exponential * rest * (4 * rest);
  }
  __device__ __forceinline__ float bounded(float x) const {
    float exponent = x * inside;
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(exponent) : "f"(60.0f));
    return power_of_two(exponent);
  }
  __device__ __forceinline__ float slope(float x) const {
    const float exponential = bounded(x);
    return slope(exponential, inverse(exponential + 1.0f));
  }
  __device__ __forceinline__ static double unit() {
    return static_cast<double>(kUnit) * 0.6931471805599453;
  }

  __device__ __forceinline__ float reference(float top) const { return rintf(bend(top) * kUnit); }
  template <typename Stored>
  __device__ __forceinline__ static bool is_near(float) {
    return true;
  }
  __device__ __forceinline__ float power_of_rest(float rest, float reference) const {
    return power_of_two(__fmaf_rn(rest, -2 * bent, bent - reference));
  }
  template <typename Stored>
  __device__ __forceinline__ float any_power(float x, float reference) const {
    return power_of_rest(rest(x), reference);
  }
  template <typename Stored>
  __device__ __forceinline__ double below(float reference, float x) const {
    return reference - static_cast<double>(bend(x)) * kUnit;
  }

  template <bool, typename Stored>
  __device__ __forceinline__ float measure(float x, float reference, float top,
                                           float& below) const {
    const float part = rest(x);
    below = __fmaf_rn(part, 2 * cap, top - cap);
    return power_of_rest(part, reference);
  }

  template <bool, typename Stored>
  __device__ __forceinline__ float gradient(float x, float reference,
                                            const RowFactors& factors) const {
    const float exponential = bounded(x), part = inverse(exponential + 1.0f);
    return __fmaf_rn(power_of_rest(part, reference), factors.all, -factors.share) *
           slope(exponential, part);
  }
  template <typename Stored>
  __device__ __forceinline__ float any_gradient(float x, float reference,
                                                const RowFactors& factors) const {
    return gradient<true, Stored>(x, reference, factors);
  }
};

struct SpreadState : RowState {
  float below = 0;     // the sum of how far bent logits are below that of `top`, over all classes
  float fraction = 0;  // the classes of that sum, over all classes

  template <typename Scale>
  __device__ __forceinline__ void raise(float to, const Scale& scale) {
    sum = sum_for(scale, scale.reference(to));
    // The difference may be infinite where nothing has been counted.
    if (fraction > 0) below += fraction * (scale.bend(to) - scale.bend(top));
    top = to;
  }

  template <typename Scale>
  __device__ __forceinline__ void add(SpreadState other, const Scale& scale) {
    const float larger = fmaxf(top, other.top);
    raise(larger, scale);
    other.raise(larger, scale);
    sum += other.sum;
    below += other.below;
    fraction += other.fraction;
  }

  // Adds one element besides the vectors, as the first. `share`: 1 / classes.
  template <typename Stored, typename Scale>
  __device__ __forceinline__ void begin(float logit, bool is_target, float share,
                                        const Scale& scale) {
    top = fmaxf(logit, -FLT_MAX);
    if (!is_target) sum = scale.template any_power<Stored>(logit, scale.reference(top));
    below = share * (scale.bend(top) - scale.bend(logit));
    fraction = share;
  }
};

// The state of all lanes of a group of so many, in each of them.
template <int lanes, typename Scale>
__device__ __forceinline__ SpreadState combine(SpreadState state, const Scale& scale) {
  float top = state.top;
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
  state.raise(top, scale);
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    state.sum += __shfl_xor_sync(~0u, state.sum, distance);
    state.below += __shfl_xor_sync(~0u, state.below, distance);
    state.fraction += __shfl_xor_sync(~0u, state.fraction, distance);
  }
  return state;
}

// The bits of the first vectors of a lane, of those that follow each other `lanes` apart.
__device__ __forceinline__ unsigned first_bits(int vectors, int lane, int lanes) {
  const int count = vectors > lane ? (vectors - lane + lanes - 1) / lanes : 0;
  return (1u << count) - 1u;
}

// Adds the vectors whose bit is set to a state whose `top` is not less than any of them; the power
// of `skipped` is left out.
template <bool near, int count, typename Stored, typename Scale>
__device__ __forceinline__ void measure(const Vector<Stored> (&vectors)[count], unsigned bits,
                                        int skipped, float share, const Scale& scale,
                                        SpreadState& state) {
  using V = Vector<Stored>;
  const float reference = scale.reference(state.top), top = scale.bend(state.top);
#pragma unroll
  for (int v = 0; v < count; ++v) {
    float sum = 0, below = 0;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float x[V::kEach];
      vectors[v].get(w, x);
#pragma unroll
      for (int k = 0; k < V::kEach; ++k) {
        float difference;
        const float power = scale.template measure<near, Stored>(x[k], reference, top, difference);
        sum += w * V::kEach + k == skipped ? 0.0f : power;
        below = __fmaf_rn(difference, share, below);
      }
    }
    if (bits >> v & 1u) {
      state.sum += sum;
      state.below += below;
    }
  }
}

template <int count, typename Stored, typename Scale>
__device__ __forceinline__ void measure_any(const Vector<Stored> (&vectors)[count], unsigned bits,
                                            int skipped, float share, const Scale& scale,
                                            SpreadState& state) {
  if (scale.template is_near<Stored>(scale.reference(state.top))) {
    measure<true>(vectors, bits, skipped, share, scale, state);
  } else {
    measure<false>(vectors, bits, skipped, share, scale, state);
  }
}

// The vector with the target, and the target's place in it; -1 in the threads that lack it.
template <typename Stored>
struct HeldVector {
  Vector<Stored> vectors[1];
  int number = -1;   // of the thread's vectors
  int element = -1;  // of the vector

  __device__ __forceinline__ unsigned bit() const { return number < 0 ? 0u : 1u << number; }
};

// Adds the vectors of a thread whose bit is set to a state, and the held one without its target.
template <int chunks, int count, typename Stored, typename Scale>
__device__ __forceinline__ void add_spread(const Vector<Stored> (&vectors)[chunks][count],
                                           unsigned bits, const HeldVector<Stored>& held,
                                           float share, const Scale& scale, SpreadState& state) {
  float top = state.top;
#pragma unroll
  for (int c = 0; c < chunks; ++c) top = largest(vectors[c], top);
  state.raise(top, scale);
  state.fraction += share * (Vector<Stored>::kCount * __popc(bits));
  const unsigned others = bits & ~held.bit();
#pragma unroll
  for (int c = 0; c < chunks; ++c)
    measure_any(vectors[c], others >> c * count, -1, share, scale, state);
  if (held.number >= 0) measure_any(held.vectors, 1u, held.element, share, scale, state);
}

template <int count, typename Stored, typename Scale>
__device__ __forceinline__ void add_spread(const Vector<Stored> (&vectors)[count], unsigned bits,
                                           const HeldVector<Stored>& held, float share,
                                           const Scale& scale, SpreadState& state) {
  state.raise(largest(vectors, state.top), scale);
  state.fraction += share * (Vector<Stored>::kCount * __popc(bits));
  measure_any(vectors, bits & ~held.bit(), -1, share, scale, state);
  if (held.number >= 0) measure_any(held.vectors, 1u, held.element, share, scale, state);
}

template <RowMode mode>
struct ModeOf {
  using Scale = RowScale;
  using State = RowState;
  __device__ __forceinline__ static RowScale scale_of(const RowArguments& arguments) {
    return RowScale(arguments.parameters[kTemperature]);
  }
};

template <>
struct ModeOf<RowMode::smoothed> {
  using Scale = SmoothedScale;
  using State = SpreadState;
  __device__ __forceinline__ static Scale scale_of(const RowArguments& arguments) {
    return Scale(arguments);
  }
};

template <>
struct ModeOf<RowMode::capped> {
  using Scale = CappedScale;
  using State = SpreadState;
  __device__ __forceinline__ static Scale scale_of(const RowArguments& arguments) {
    return Scale(arguments);
  }
};

}  // namespace losscli::cuda
