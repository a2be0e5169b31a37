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

  static constexpr bool always_shared = true;

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

// Logits that a softcap bends: u = C * tanh(x / C), with C = temperature * softcap. The temperature
// divides them afterwards, as it does plain logits, so that `top` and `reference` are of bent ones.
struct CappedScale : RowScale {
  float cap, inverse_cap;        // C
  float power_high, power_low;   // 2 * log2(e) / C in two parts
  float most;                    // the largest |x| of the polynomial; negative for none

  static constexpr bool always_shared = false;

  __device__ __forceinline__ explicit CappedScale(const RowArguments& arguments)
      : RowScale(arguments.parameters[kTemperature]) {
    const double both = arguments.parameters[kTemperature] * arguments.parameters[kSoftcap];
    const double inside = 2.8853900817779268 / both;
    cap = static_cast<float>(both);
    inverse_cap = static_cast<float>(1 / both);
    power_high = static_cast<float>(inside);
    power_low = static_cast<float>(inside - power_high);
    const bool few = item_bytes(arguments.dtype) == 4 || arguments.parameters[kSoftcap] <= kFewCap;
    most = few ? cap : -1.0f;
  }

  // A bent logit, and the derivative of it.
  struct Bent {
    float logit, slope;
  };

  // For |x| of up to C: x + x * s * P(s) with s = (x / C)^2. The error of s * P(s), beside the
  // tangent's quotient, is 2^-27.7; in 16 bits 2^-20.5, which is little in the exponent of a power
  // for a softcap of up to kFewCap.
  template <typename Stored>
  __device__ __forceinline__ Bent bend_little(float x) const {
    const float z = x * inverse_cap, s = z * z;
    float p;
    if constexpr (sizeof(Stored) == 4) {
      p = __fmaf_rn(s, -0.00035845028f, 0.0023013582f);
      p = __fmaf_rn(s, p, -0.0079460964f);
      p = __fmaf_rn(s, p, 0.021486651f);
      p = __fmaf_rn(s, p, -0.0538798f);
      p = __fmaf_rn(s, p, 0.13332345f);
      p = __fmaf_rn(s, p, -0.33333296f);
    } else {
      p = __fmaf_rn(s, -0.0031265768f, 0.016906407f);
      p = __fmaf_rn(s, p, -0.051768284f);
      p = __fmaf_rn(s, p, 0.1328849f);
      p = __fmaf_rn(s, p, -0.3333028f);
    }
    const float rest = s * p, tangent = __fmaf_rn(z, rest, z);
    return {__fmaf_rn(x, rest, x), __fmaf_rn(-tangent, tangent, 1.0f)};
  }

  // For any x: tanh(z) = 1 - 2 * r with r = 1 / (1 + exp(2 * z)), whose derivative by z is
  // 4 * exp(2 * z) * r^2 with all its digits. In 16 bits the error of r, some 2^-23, is little. In
  // float32 it is too much for |z| below 1, and beyond the exponent has two parts.
  template <typename Stored>
  __device__ __forceinline__ Bent bend_much(float x) const {
    if constexpr (sizeof(Stored) == 4) {
      const float size = least(fabsf(x), cap * 43.0f), high = size * power_high;
      const float low = __fmaf_rn(size, power_low, __fmaf_rn(size, power_high, -high));
      float exponential = power_of_two(high);
      exponential = __fmaf_rn(exponential, low * 0.69314718f, exponential);
      const float sum = exponential + 1.0f;
      float rest = inverse_of(sum);
      rest = __fmaf_rn(__fmaf_rn(-sum, rest, 1.0f), rest, rest);
      Bent bent = {copysignf(__fmaf_rn(rest, -2 * cap, cap), x), exponential * rest * (4 * rest)};
      const Bent little = bend_little<Stored>(x);
      const bool is_little = fabsf(x) <= cap;
      return {is_little ? little.logit : bent.logit, is_little ? little.slope : bent.slope};
    } else {
      const float exponential = power_of_two(least(x * power_high, 60.0f));
      const float rest = inverse_of(exponential + 1.0f);
      return {__fmaf_rn(rest, -2 * cap, cap), exponential * rest * (4 * rest)};
    }
  }

  template <bool little, typename Stored>
  __device__ __forceinline__ Bent bent(float x) const {
    if constexpr (little) return bend_little<Stored>(x);
    return bend_much<Stored>(x);
  }
  __device__ __forceinline__ float bend(float x) const { return bend_much<float>(x).logit; }
  __device__ __forceinline__ float slope(float x) const { return bend_much<float>(x).slope; }
  __device__ __forceinline__ double unit() const {
    return (static_cast<double>(high) + low) * 0.6931471805599453;
  }

  // Whether the polynomial does for all of a lane's logits.
  template <int count, typename Stored>
  __device__ __forceinline__ bool is_near(float, const Vector<Stored> (&vectors)[count]) const {
    return largest_size(vectors) <= most;
  }

  template <bool little, typename Stored>
  __device__ __forceinline__ float measure(float x, float reference, float top,
                                           float& below) const {
    const float logit = bent<little, Stored>(x).logit;
    below = top - logit;
    return power<Stored>(logit, reference);
  }

  template <bool little, typename Stored>
  __device__ __forceinline__ float gradient(float x, float reference,
                                            const RowFactors& factors) const {
    const Bent both = bent<little, Stored>(x);
    return __fmaf_rn(power<Stored>(both.logit, reference), factors.all, -factors.share) *
           both.slope;
  }
  template <typename Stored>
  __device__ __forceinline__ float any_gradient(float x, float reference,
                                                const RowFactors& factors) const {
    return gradient<false, Stored>(x, reference, factors);
  }

 private:
  __device__ __forceinline__ static float inverse_of(float x) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
  }
  // NaN of NaN.
  __device__ __forceinline__ static float least(float a, float b) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
  }
};

// `top` is a bent logit.
struct SpreadState : RowState {
  float below = 0;     // the sum of how far bent logits are below that of `top`, over all classes
  float fraction = 0;  // the classes of that sum, over all classes

  template <typename Scale>
  __device__ __forceinline__ void raise(float to, const Scale& scale) {
    sum = sum_for(scale, scale.reference(to));
    // The difference may be infinite where nothing has been counted.
    if (fraction > 0) below += fraction * (to - top);
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
    const float bent = scale.bend(logit);
    top = fmaxf(bent, -FLT_MAX);
    if (!is_target) sum = scale.template any_power<Stored>(bent, scale.reference(top));
    if (share != 0) below = share * (top - bent);
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
template <bool near, bool shared, int count, typename Stored, typename Scale>
__device__ __forceinline__ void measure(const Vector<Stored> (&vectors)[count], unsigned bits,
                                        int skipped, float share, const Scale& scale,
                                        SpreadState& state) {
  using V = Vector<Stored>;
  const float reference = scale.reference(state.top), top = state.top;
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
        if (shared) below = __fmaf_rn(difference, share, below);
      }
    }
    if (bits >> v & 1u) {
      state.sum += sum;
      if (shared) state.below += below;
    }
  }
}

template <int count, typename Stored, typename Scale>
__device__ __forceinline__ void measure_any(const Vector<Stored> (&vectors)[count], unsigned bits,
                                            int skipped, float share, const Scale& scale,
                                            SpreadState& state) {
  const auto in = [&](auto near) {
    if (Scale::always_shared || share != 0) {
      measure<decltype(near)::value, true>(vectors, bits, skipped, share, scale, state);
    } else {
      measure<decltype(near)::value, false>(vectors, bits, skipped, share, scale, state);
    }
  };
  if (scale.is_near(scale.reference(state.top), vectors)) {
    in(std::true_type());
  } else {
    in(std::false_type());
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
  float top = -FLT_MAX;
#pragma unroll
  for (int c = 0; c < chunks; ++c) top = largest(vectors[c], top);
  state.raise(fmaxf(state.top, scale.bend(top)), scale);
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
  state.raise(fmaxf(state.top, scale.bend(largest(vectors, -FLT_MAX))), scale);
  state.fraction += share * (Vector<Stored>::kCount * __popc(bits));
  measure_any(vectors, bits & ~held.bit(), -1, share, scale, state);
  if (held.number >= 0) measure_any(held.vectors, 1u, held.element, share, scale, state);
}

// The share of each class in a row's loss, over the label smoothing; 0 where nothing has a share.
template <RowMode mode>
__device__ __forceinline__ float share_of(const RowArguments& arguments) {
  if (mode == RowMode::plain) return 0;
  if (mode == RowMode::capped && arguments.parameters[kLabelSmoothing] == 0) return 0;
  return 1.0f / static_cast<float>(arguments.length);
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
