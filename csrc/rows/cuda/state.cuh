// The state of a row while it is read: its largest logit and the sum of its exponentials, in powers
// of two.
//
// With c = log2(e) / temperature, exp((x - m) / temperature) is 2^(c * x - c * m). The `reference`
// is c * m, rounded to a whole number: the powers of two states differ by a power of two, exactly.
#pragma once

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "core/cuda/memory.cuh"
#include "rows/kernels.h"

namespace losscli::cuda {

__device__ __forceinline__ float power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

// Calls `body` with whether a condition holds, as a constant.
template <typename Body>
__device__ __forceinline__ void with_constant(bool condition, const Body& body) {
  if (condition) {
    body(std::true_type());
  } else {
    body(std::false_type());
  }
}

// What the gradients of a row are made of.
struct RowFactors {
  float all = 0;    // times the exponential of a class
  float own = 0;    // the gradient of the target's logit
  float share = 0;  // less this for each class, with label smoothing
};

template <typename Stored>
struct Vector;

// What logits are multiplied by: log2(e) / temperature, in two parts.
struct RowScale {
  float high, low;
  float inverse;

  // Whether vectors that are not near are taken by functions of their own.
  static constexpr bool apart = false;

  LOSSCLI_HOST_DEVICE explicit RowScale(const RowArguments& arguments) {
    const double scale = 1.4426950408889634 / arguments.parameters[kTemperature];
    high = static_cast<float>(scale);
    low = static_cast<float>(scale - high);
    inverse = 1.0f / high;
  }

  // Finite where all logits are -inf, whose exponentials are then 0 and not NaN. Rounded down
  // first: of a `top` so large that its product is not within 1 of a float, the power is at
  // least 1.
  __device__ __forceinline__ float reference(float top) const {
    return fmaxf(rintf(__fmul_rd(top, high)), -FLT_MAX);
  }

  // Whether whole numbers near it are exact in the arithmetic below, and the least logit finite.
  __device__ __forceinline__ bool is_exact(float reference) const {
    return fabsf(reference) < 1048576.0f && high > 0x1p-100f;
  }

  // 2^(scale * x - reference), with the error of the exponential alone; 0 below 2^-126, NaN of NaN.
  //
  // Rounding an exponent of -20 would cost a float 8 ulp. So the whole part is taken off first:
  // what remains is in [0, 1), from one rounding. The power of the whole part is put together from
  // its bits, where -127 makes 0: that of all lesser logits, which are taken for one in between.
  template <typename Stored>
  __device__ __forceinline__ float power(float x, float reference) const {
    if constexpr (sizeof(Stored) == 2) {
      return fast_power(x, reference);
    } else {
      constexpr float kWhole = 12582912.0f;  // 1.5 * 2^23: the low bits of a sum with it are whole
      const float shift = kWhole - reference, least = (reference - 126.5f) * inverse;
      asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(least));
      const float whole = __fmaf_rd(x, high, shift);
      const float fraction = __fmaf_rn(x, low, __fmaf_rn(x, high, shift - whole));
      return power_of_two(fraction) * __uint_as_float((__float_as_uint(whole) << 23) + 0x3f800000u);
    }
  }

  // Whether `power` is right for a reference: in 16 bits for any.
  template <typename Stored>
  __device__ __forceinline__ bool is_near(float reference) const {
    return sizeof(Stored) == 2 || is_exact(reference);
  }
  template <int count, typename Stored>
  __device__ __forceinline__ bool is_near(float reference, const Vector<Stored> (&)[count]) const {
    return is_near<Stored>(reference);
  }

  // Logits as they are.
  __device__ __forceinline__ float bend(float x) const { return x; }
  __device__ __forceinline__ float slope(float) const { return 1; }
  // What the difference of two logits is in the exponent.
  __device__ __forceinline__ double unit() const {
    return (static_cast<double>(high) + low) * 0.6931471805599453;
  }

  // The same for a reference that is near or not, and for one of any size.
  template <bool near, typename Stored>
  __device__ __forceinline__ float power_at(float x, float reference) const {
    return near ? power<Stored>(x, reference) : far_power(x, reference);
  }
  template <typename Stored>
  __device__ __forceinline__ float any_power(float x, float reference) const {
    return is_near<Stored>(reference) ? power<Stored>(x, reference) : far_power(x, reference);
  }

  // Of logits of 16 bits. From 2^22 on all that are not the largest are at least 2^11 below it, and
  // have a power of 0; the rounding of the largest's exponent may be more than a power can be. So
  // exponents are scaled down there, to a reference below 2^23: the largest's power is from 1 to 2.
  __device__ __forceinline__ float fast_power(float x, float reference) const {
    constexpr uint32_t kLeast = 149u << 23;  // the exponent of 2^22
    const uint32_t exponent = __float_as_uint(reference) & 0x7f800000u;
    const float down = __uint_as_float((127u << 23) + kLeast - max(exponent, kLeast));
    return power_of_two(__fmaf_rn(x, high * down, -reference * down));
  }

  // How far a logit is below a reference, in powers of two, with the scale that the powers are
  // computed with.
  template <typename Stored>
  __device__ __forceinline__ double below(float reference, float x) const {
    const bool both = sizeof(Stored) == 4 && is_exact(reference);
    const double factor = both ? static_cast<double>(high) + low : high;
    return reference - x * factor;
  }

  // The gradient of a logit that is not the target's.
  template <bool near, typename Stored>
  __device__ __forceinline__ float gradient(float x, float reference,
                                            const RowFactors& factors) const {
    return factors.all * power_at<near, Stored>(x, reference);
  }

  // For a reference of any size: of the largest logits, all of whose powers are equal, finite.
  __device__ __forceinline__ float far_power(float x, float reference) const {
    float exponent = __fmaf_rn(x, high, -reference);
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(exponent) : "f"(96.0f));
    return power_of_two(exponent);
  }
};

struct RowState {
  float top = -FLT_MAX;  // the largest logit, of those that are numbers
  float sum = 0;         // of the powers of all logits, for the reference of `top`

  template <typename Scale>
  __device__ __forceinline__ float sum_for(const Scale& scale, float reference) const {
    // The powers of logits as low as -1e10, of which the largest are, may be infinite in 16 bits.
    const float finite = sum > FLT_MAX ? FLT_MAX : sum;
    return finite * power_of_two(scale.reference(top) - reference);
  }

  template <typename Scale>
  __device__ __forceinline__ void raise(float to, const Scale& scale) {
    sum = sum_for(scale, scale.reference(to));
    top = to;
  }

  // Begins with one element besides the vectors, unless it is the target's.
  template <typename Stored, typename Scale>
  __device__ __forceinline__ void begin(float logit, bool is_target, float, const Scale& scale) {
    if (is_target) return;
    top = fmaxf(logit, -FLT_MAX);
    sum = scale.template any_power<Stored>(logit, scale.reference(top));
  }

  // Calls `body` with what is summed, each with that of another state.
  template <typename Body>
  __device__ __forceinline__ void each_sum(const RowState& other, const Body& body) {
    body(sum, other.sum);
  }
};

// Adds what another has to a state.
template <typename State, typename Scale>
__device__ __forceinline__ void merge(State& state, State other, const Scale& scale) {
  const float larger = fmaxf(state.top, other.top);
  state.raise(larger, scale);
  other.raise(larger, scale);
  state.each_sum(other, [](float& sum, float its) { sum += its; });
}

// The state of all lanes of a group of so many, in each of them.
template <int lanes, typename State, typename Scale>
__device__ __forceinline__ State combine(State state, const Scale& scale) {
  float top = state.top;
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    top = fmaxf(top, __shfl_xor_sync(~0u, top, distance));
  state.raise(top, scale);
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    state.each_sum(state, [&](float& sum, float) { sum += __shfl_xor_sync(~0u, sum, distance); });
  return state;
}

// 16 bytes of logits.
template <typename Stored>
struct Vector {
  static constexpr int kCount = 16 / sizeof(Stored);
  static constexpr int kEach = 4 / sizeof(Stored);
  uint32_t words[4];

  __device__ __forceinline__ void get(int word, float (&out)[kEach]) const {
    if constexpr (std::is_same_v<Stored, float>) {
      out[0] = __uint_as_float(words[word]);
    } else if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
      out[0] = __uint_as_float(words[word] << 16);
      out[1] = __uint_as_float(words[word] & 0xffff0000u);
    } else {
      __half2 pair;
      memcpy(&pair, &words[word], sizeof pair);
      const float2 both = __half22float2(pair);
      out[0] = both.x, out[1] = both.y;
    }
  }

  __device__ __forceinline__ void set(int word, const float (&in)[kEach]) {
    if constexpr (std::is_same_v<Stored, float>) {
      words[word] = __float_as_uint(in[0]);
    } else if constexpr (std::is_same_v<Stored, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(in[0], in[1]);
      memcpy(&words[word], &pair, sizeof pair);
    } else {
      const __half2 pair = __floats2half2_rn(in[0], in[1]);
      memcpy(&words[word], &pair, sizeof pair);
    }
  }

  __device__ __forceinline__ void set(const uint4& raw) {
    words[0] = raw.x, words[1] = raw.y, words[2] = raw.z, words[3] = raw.w;
  }

  __device__ __forceinline__ uint4 raw() const {
    return make_uint4(words[0], words[1], words[2], words[3]);
  }

  __device__ __forceinline__ void fill(float value) {
    float each[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) each[k] = value;
#pragma unroll
    for (int w = 0; w < 4; ++w) set(w, each);
  }

  // -inf in each element, which adds nothing to any sum.
  __device__ __forceinline__ void clear() {
    constexpr uint32_t kNothing = std::is_same_v<Stored, float>           ? 0xff800000u
                                  : std::is_same_v<Stored, __nv_bfloat16> ? 0xff80ff80u
                                                                          : 0xfc00fc00u;
    words[0] = words[1] = words[2] = words[3] = kNothing;
  }

  // Calls `body` with each element and its place.
  template <typename Body>
  __device__ __forceinline__ void each(const Body& body) const {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float x[kEach];
      get(w, x);
#pragma unroll
      for (int k = 0; k < kEach; ++k) body(x[k], w * kEach + k);
    }
  }
  // Puts what `body` makes of each element in its place.
  template <typename Body>
  __device__ __forceinline__ void transform(const Body& body) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float x[kEach];
      get(w, x);
#pragma unroll
      for (int k = 0; k < kEach; ++k) x[k] = body(x[k]);
      set(w, x);
    }
  }

  // Takes one element out, and leaves the same in its place.
  __device__ __forceinline__ float take(int element) {
    float taken = 0;
    each([&](float x, int place) {
      if (place == element) taken = x;
    });
    clear(element);
    return taken;
  }

  __device__ __forceinline__ void clear(int element) {
    if constexpr (std::is_same_v<Stored, float>) {
#pragma unroll
      for (int k = 0; k < 4; ++k) words[k] = k == element ? 0xff800000u : words[k];
    } else {
      constexpr uint32_t kNothing = std::is_same_v<Stored, __nv_bfloat16> ? 0xff80u : 0xfc00u;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (2 * k == element) words[k] = (words[k] & 0xffff0000u) | kNothing;
        if (2 * k + 1 == element) words[k] = (words[k] & 0xffffu) | kNothing << 16;
      }
    }
  }
};

// The largest element of vectors and `top`, or with `sizes` the largest absolute value.
template <bool sizes = false, int count, typename Stored>
__device__ __forceinline__ float largest(const Vector<Stored> (&vectors)[count], float top) {
  if constexpr (std::is_same_v<Stored, float>) {
    float tops[4] = {top, top, top, top};
#pragma unroll
    for (int v = 0; v < count; ++v)
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float x = __uint_as_float(vectors[v].words[w]);
        tops[w] = fmaxf(tops[w], sizes ? fabsf(x) : x);
      }
    return fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
  } else {
    using Pair = std::conditional_t<std::is_same_v<Stored, __half>, __half2, __nv_bfloat162>;
    Pair tops[4] = {};
    if (!sizes) memcpy(tops, vectors[0].words, sizeof tops);
#pragma unroll
    for (int v = sizes ? 0 : 1; v < count; ++v)
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        Pair pair;
        memcpy(&pair, &vectors[v].words[w], sizeof pair);
        tops[w] = __hmax2(tops[w], sizes ? __habs2(pair) : pair);
      }
    const Pair both = __hmax2(__hmax2(tops[0], tops[1]), __hmax2(tops[2], tops[3]));
    const float found = fmaxf(widen(both.x), widen(both.y));
    return sizes ? found : fmaxf(found, top);
  }
}

// A thread's vectors of so many, each so far from the one before. In place of those that it lacks
// is what adds nothing; or the first again, so that its logits are all of a size.
template <bool repeats, int count, typename Stored>
__device__ __forceinline__ void read_vectors(const void* from, int vectors, int first, int step,
                                             Vector<Stored> (&out)[count]) {
#pragma unroll
  for (int v = 0; v < count; ++v) {
    const int at = first + v * step;
    if (at < vectors || (repeats && vectors > 0))
      out[v].set(static_cast<const uint4*>(from)[at < vectors ? at : 0]);
    else
      out[v].clear();
  }
}
template <int count, typename Stored>
__device__ __forceinline__ void write_vectors(void* to, int vectors, int first, int step,
                                              const Vector<Stored> (&in)[count]) {
#pragma unroll
  for (int v = 0; v < count; ++v)
    if (first + v * step < vectors) static_cast<uint4*>(to)[first + v * step] = in[v].raw();
}

// Keeps the compiler from holding on to what it has made of vectors until they are used again.
template <int count, typename Stored>
__device__ __forceinline__ void forget(Vector<Stored> (&vectors)[count]) {
#pragma unroll
  for (int v = 0; v < count; ++v)
#pragma unroll
    for (int w = 0; w < 4; ++w) asm volatile("" : "+r"(vectors[v].words[w]));
}

// The sum of the powers of so many vectors. No branch between them: their powers overlap.
template <bool exact, int count, typename Stored>
__device__ __forceinline__ float add_powers(const Vector<Stored> (&vectors)[count],
                                            const RowScale& scale, float reference) {
  constexpr int kCount = Vector<Stored>::kCount;
  float sums[8] = {};
#pragma unroll
  for (int v = 0; v < count; ++v)
    vectors[v].each([&](float x, int place) {
      sums[(v * kCount + place) % 8] += scale.template power_at<exact, Stored>(x, reference);
    });
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <int count, typename Stored>
__device__ __forceinline__ float sum_powers(const Vector<Stored> (&vectors)[count],
                                            const RowScale& scale, float reference) {
  return scale.template is_near<Stored>(reference) ? add_powers<true>(vectors, scale, reference)
                                                   : add_powers<false>(vectors, scale, reference);
}

// Adds so many vectors to a state, of so many chunks.
template <int chunks = 1, int count, typename Stored>
__device__ __forceinline__ void add_vectors(const Vector<Stored> (*vectors)[count],
                                            const RowScale& scale, RowState& state) {
  float top = state.top;
#pragma unroll
  for (int c = 0; c < chunks; ++c) top = largest(vectors[c], top);
  const float to = scale.reference(top);
  state.sum = state.sum_for(scale, to);
  state.top = top;
#pragma unroll
  for (int c = 0; c < chunks; ++c) state.sum += sum_powers(vectors[c], scale, to);
}

// The gradient of any logit that is not the target's, by its row alone.
template <typename Stored, typename Scale>
__device__ __forceinline__ float any_gradient(float x, const Scale& scale, float reference,
                                              const RowFactors& factors) {
  return scale.template is_near<Stored>(reference)
             ? scale.template gradient<true, Stored>(x, reference, factors)
             : scale.template gradient<false, Stored>(x, reference, factors);
}

// The gradients of vectors in their place: 0 of a row that is ignored.
template <int count, typename Stored, typename Scale>
__device__ __forceinline__ void differentiate(Vector<Stored> (&vectors)[count], const Scale& scale,
                                              float reference, const RowFactors& factors,
                                              bool ignored) {
  const auto by = [&](auto near) {
#pragma unroll
    for (int v = 0; v < count; ++v)
      vectors[v].transform([&](float x) {
        return scale.template gradient<decltype(near)::value, Stored>(x, reference, factors);
      });
  };
  if (scale.is_near(reference, vectors)) {
    by(std::true_type());
  } else if constexpr (Scale::apart) {
#pragma unroll
    for (int v = 0; v < count; ++v)
      vectors[v] = scale.differentiate_apart(vectors[v], reference, factors.all, factors.share);
  } else {
    by(std::false_type());
  }
  if (ignored)
#pragma unroll
    for (Vector<Stored>& vector : vectors) vector = Vector<Stored>{};
}

}  // namespace losscli::cuda
