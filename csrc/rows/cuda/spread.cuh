// Rows of whose loss each class has a share (label smoothing), and rows of bent logits (softcap):
// what the kernels that read a row once have of them instead of a RowScale and a RowState.
//
// Here the target's logit is one of those in `top`, and no element is replaced by -inf, which would
// be a logit as any other: vectors that are not to be counted are left out by a bit each.
#pragma once

#include "rows/cuda/policies.h"
#include "rows/cuda/state.cuh"

namespace losscli::cuda {

// Logits as they are.
struct SmoothedScale : RowScale {
  using RowScale::RowScale;

  static constexpr bool always_shared = true;

  // The power of a logit, and how far it is below a bent one.
  template <bool near, typename Stored>
  __device__ __forceinline__ float measure(float x, float reference, float top,
                                           float& below) const {
    below = top - x;
    return power_at<near, Stored>(x, reference);
  }

  template <bool near, typename Stored>
  __device__ __forceinline__ float gradient(float x, float reference,
                                            const RowFactors& factors) const {
    const float p = power_at<near, Stored>(x, reference);
    return __fmaf_rn(p, factors.all, -factors.share);
  }
};

// Logits that a softcap bends: u = C * tanh(x / C), with C = temperature * softcap. The temperature
// divides them afterwards, as it does plain logits, so that `top` and `reference` are of bent ones.
struct CappedScale : RowScale {
  // For |x| of up to C the exponent of a logit's power is x * K(x^2), with a polynomial for `high`
  // times tanh(x / C) / (x / C). K is off by 2 * 2^-24, in float32, with a term more, by 1.3 *
  // 2^-24.
  static constexpr int kTerms = 8;
  float terms[kTerms];
  float square;  // times the square of an exponent: -tanh(x / C)^2
  float most;    // the largest |x| that K takes; negative for none, where C is of unusual size
  float cap, inverse_cap;
  float twice_high, twice_low;  // 2 * log2(e) / C in two parts

  static constexpr bool always_shared = false, apart = true;

  LOSSCLI_HOST_DEVICE explicit CappedScale(const RowArguments& arguments) : RowScale(arguments) {
    constexpr double kOf16Bits[kTerms] = {1,
                                          -0.333329867833,
                                          0.13326408914,
                                          -0.0534987092543,
                                          0.0203597626615,
                                          -0.00625934246512,
                                          0.00105826576773};
    constexpr double kOfFloat[kTerms] = {1,
                                         -0.33333295428,
                                         0.133323445176,
                                         -0.0538797998222,
                                         0.0214866502617,
                                         -0.00794609675104,
                                         0.0023013581368,
                                         -0.000358450287878};
    const double both = arguments.parameters[kTemperature] * arguments.parameters[kSoftcap];
    double factor = 1.4426950408889634 / arguments.parameters[kTemperature];
    square = static_cast<float>(-1 / (both * factor * (both * factor)));
    for (int k = 0; k < kTerms; ++k) {
      terms[k] = static_cast<float>(
          factor * (item_bytes(arguments.dtype) == 4 ? kOfFloat[k] : kOf16Bits[k]));
      factor /= both * both;
    }
    cap = static_cast<float>(both);
    inverse_cap = static_cast<float>(1 / both);
    most = both >= 0x1p-8 && both <= 0x1p+8 ? cap : -1.0f;
    const double twice = 2.8853900817779268 / both;
    twice_high = static_cast<float>(twice);
    twice_low = static_cast<float>(twice - twice_high);
  }

  // A bent logit, and the derivative of it.
  struct Bent {
    float logit, slope;
  };

  // Any x. For |x| of up to C a polynomial in (x / C)^2, as above. Beyond, tanh(z) is 1 - 2 * r
  // with r = 1 / (1 + exp(2 * z)), and its derivative 4 * exp(2 * z) * r^2, which has all its
  // digits; in float32 with an exponent of two parts, and a quotient that is refined.
  template <typename Stored>
  __device__ __forceinline__ Bent bend_any(float x) const {
    constexpr bool kIsFloat = sizeof(Stored) == 4;
    const float z = x * inverse_cap, s = z * z;
    float p = __fmaf_rn(s, -0.00035845028f, 0.0023013582f);
    p = __fmaf_rn(s, p, -0.0079460964f);
    p = __fmaf_rn(s, p, 0.021486651f);
    p = __fmaf_rn(s, p, -0.0538798f);
    p = __fmaf_rn(s, p, 0.13332345f);
    p = __fmaf_rn(s, p, -0.33333296f) * s;
    const float tangent = __fmaf_rn(z, p, z);
    const Bent little = {__fmaf_rn(x, p, x), __fmaf_rn(-tangent, tangent, 1.0f)};
    const float size = least(fabsf(x), cap * 43.0f), exponent = size * twice_high;
    float exponential = power_of_two(exponent);
    if (kIsFloat) {
      const float rest = __fmaf_rn(size, twice_low, __fmaf_rn(size, twice_high, -exponent));
      exponential = __fmaf_rn(exponential, rest * 0.69314718f, exponential);
    }
    const float sum = exponential + 1.0f;
    float inverse = inverse_of(sum);
    if (kIsFloat) inverse = __fmaf_rn(__fmaf_rn(-sum, inverse, 1.0f), inverse, inverse);
    const Bent much = {copysignf(__fmaf_rn(inverse, -2 * cap, cap), x),
                       exponential * inverse * (4 * inverse)};
    const bool is_little = fabsf(x) <= cap;
    return {is_little ? little.logit : much.logit, is_little ? little.slope : much.slope};
  }
  // The same where an error of C * 2^-22 is little.
  __device__ __forceinline__ Bent bend_roughly(float x) const {
    const float exponential = power_of_two(least(x * twice_high, 60.0f));
    const float inverse = inverse_of(exponential + 1.0f);
    return {__fmaf_rn(inverse, -2 * cap, cap), exponential * inverse * (4 * inverse)};
  }
  __device__ __forceinline__ float bend(float x) const { return bend_any<float>(x).logit; }
  __device__ __forceinline__ float slope(float x) const { return bend_any<float>(x).slope; }

  // Whether K takes all of a lane's logits: a row alone does not tell.
  template <typename Stored>
  __device__ __forceinline__ bool is_near(float) const {
    return false;
  }
  template <int count, typename Stored>
  __device__ __forceinline__ bool is_near(float, const Vector<Stored> (&vectors)[count]) const {
    return largest<true>(vectors, 0) <= most;
  }

  template <typename Stored>
  __device__ __forceinline__ float factor_of(float x) const {
    const float s = x * x;
    float factor = terms[kTerms - 2];
    if (sizeof(Stored) == 4) factor = __fmaf_rn(s, terms[kTerms - 1], factor);
#pragma unroll
    for (int k = kTerms - 3; k >= 0; --k) factor = __fmaf_rn(s, factor, terms[k]);
    return factor;
  }

  // As the exponent is off by the rounding of K, one rounding of it more is little.
  template <bool little, typename Stored>
  __device__ __forceinline__ float measure(float x, float reference, float top,
                                           float& below) const {
    if constexpr (little) {
      const float factor = factor_of<Stored>(x);
      below = __fmaf_rn(x * factor, -inverse, top);
      return power_of_two(__fmaf_rn(x, factor, -reference));
    }
    const float logit = bend_any<Stored>(x).logit;
    below = top - logit;
    return power<Stored>(logit, reference);
  }

  template <bool little, typename Stored>
  __device__ __forceinline__ float gradient(float x, float reference,
                                            const RowFactors& factors) const {
    if constexpr (little) {
      const float factor = factor_of<Stored>(x), whole = x * factor;
      const float power = power_of_two(__fmaf_rn(x, factor, -reference));
      return __fmaf_rn(power, factors.all, -factors.share) * __fmaf_rn(whole * whole, square, 1.0f);
    }
    const Bent bent = bend_any<Stored>(x);
    return __fmaf_rn(power<Stored>(bent.logit, reference), factors.all, -factors.share) *
           bent.slope;
  }

  // Vectors with logits beyond C, which are rare: in functions of their own, so that the registers
  // of those that are not do not have to do for them. The power of `skipped` is left out.
  template <typename Stored>
  __device__ __noinline__ float2 measure_apart(Vector<Stored> vector, int skipped, bool shared,
                                               float reference, float top) const {
    float sum = 0, below = 0;
    with_bend<Stored>(shared, [&](const auto& bend) {
      vector.each([&](float x, int place) {
        const float logit = bend(x).logit, power_of = power<Stored>(logit, reference);
        sum += place == skipped ? 0.0f : power_of;
        below += top - logit;
      });
    });
    return {sum, below};
  }
  template <typename Stored>
  __device__ __noinline__ Vector<Stored> differentiate_apart(Vector<Stored> vector, float reference,
                                                             float all, float share) const {
    with_bend<Stored>(share != 0, [&](const auto& bend) {
      vector.transform([&](float x) {
        const Bent bent = bend(x);
        return __fmaf_rn(power<Stored>(bent.logit, reference), all, -share) * bent.slope;
      });
    });
    return vector;
  }

 private:
  // Calls `body` with what bends logits: roughly in 16 bits, if the cap is not large, and if
  // classes have no shares, of which a gradient may be the difference.
  template <typename Stored, typename Body>
  __device__ __forceinline__ void with_bend(bool shared, const Body& body) const {
    if (sizeof(Stored) == 2 && !shared && cap * high < 1024.0f) {
      body([&](float x) { return bend_roughly(x); });
    } else {
      body([&](float x) { return bend_any<Stored>(x); });
    }
  }
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
  float below = 0;     // the sum of how far bent logits are below that of `top`, times `share_of`
  float fraction = 0;  // the number of classes of that sum, times the same

  template <typename Scale>
  __device__ __forceinline__ void raise(float to, const Scale& scale) {
    sum = sum_for(scale, scale.reference(to));
    // The difference may be infinite where nothing has been counted.
    if (fraction > 0) below += fraction * (to - top);
    top = to;
  }

  template <typename Body>
  __device__ __forceinline__ void each_sum(const SpreadState& other, const Body& body) {
    body(sum, other.sum);
    body(below, other.below);
    body(fraction, other.fraction);
  }

  // Adds one element besides the vectors, as the first. `share`: what multiplies distances.
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
  const float reference = scale.reference(state.top), top = state.top;
#pragma unroll
  for (int v = 0; v < count; ++v) {
    if constexpr (!near && Scale::apart) {
      const float2 found = scale.measure_apart(vectors[v], skipped, share != 0, reference, top);
      if (bits >> v & 1u) {
        state.sum += found.x;
        state.below += share * found.y;
      }
      continue;
    }
    float sum = 0, below = 0;
    vectors[v].each([&](float x, int place) {
      float difference;
      const float power = scale.template measure<near, Stored>(x, reference, top, difference);
      sum += place == skipped ? 0.0f : power;
      if (shared) below = __fmaf_rn(difference, share, below);
    });
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
  with_constant(scale.is_near(scale.reference(state.top), vectors), [&](auto near) {
    constexpr bool kNear = decltype(near)::value, kApart = Scale::apart && !kNear;
    if (Scale::always_shared || share != 0 || kApart) {
      measure<kNear, true>(vectors, bits, skipped, share, scale, state);
    } else {
      measure<kNear, false>(vectors, bits, skipped, share, scale, state);
    }
  });
}

// The vector with the target, and the target's place in it; -1 in the threads that lack it.
template <typename Stored>
struct HeldVector {
  Vector<Stored> vectors[1];
  int number = -1;   // of the thread's vectors
  int element = -1;  // of the vector

  // Holds what has the element at a place in bytes, if it is among a warp's vectors and the lane's.
  __device__ __forceinline__ void hold(const unsigned char* data, int place, int lane) {
    if (place / 16 % 32 != lane) return;
    vectors[0].set(*reinterpret_cast<const uint4*>(data + place / 16 * 16));
    number = place / 16 / 32;
    element = place % 16 / static_cast<int>(sizeof(Stored));
  }
  __device__ __forceinline__ unsigned bit() const { return number < 0 ? 0u : 1u << number; }
};

// Adds the vectors of a thread whose bit is set to a state, and the held one without its target.
template <int chunks = 1, int count, typename Stored, typename Scale>
__device__ __forceinline__ void add_spread(const Vector<Stored> (*vectors)[count], unsigned bits,
                                           const HeldVector<Stored>& held, float share,
                                           const Scale& scale, SpreadState& state) {
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

// What multiplies the distances of a row's classes while they are added: the power of two next
// below 1 / classes, or that itself, by which nothing is rounded; 0 where no class has a share.
__device__ __forceinline__ float share_of(const RowArguments& arguments) {
  if (arguments.parameters[kLabelSmoothing] == 0) return 0;
  return __int_as_float((95 + __clz(static_cast<int>(arguments.length) - 1)) << 23);
}

template <RowMode mode>
struct ModeOf {
  using Spread = std::conditional_t<mode == RowMode::capped, CappedScale, SmoothedScale>;
  using Scale = std::conditional_t<mode == RowMode::plain, RowScale, Spread>;
  using State = std::conditional_t<mode == RowMode::plain, RowState, SpreadState>;
};

}  // namespace losscli::cuda
