// Between the dtypes in memory and the Real that is computed with: one number, or a run of them.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__F16C__) && defined(__AVX2__)
#include <immintrin.h>
#endif

#include "core/bits.h"
#include "core/dtype.h"

namespace losscli::cpu {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

inline float widen(BFloat16 stored) { return bit_cast<float>(uint32_t{stored.bits} << 16); }

inline float widen(Half stored) {
  const uint32_t sign = uint32_t{stored.bits & 0x8000u} << 16;
  const uint32_t rest = uint32_t{stored.bits & 0x7fffu} << 13;
  // 2^112 moves half's exponent bias to float's and normalises half's subnormals.
  const float value = bit_cast<float>(rest) * 0x1p112f;
  const bool finite = (stored.bits & 0x7c00u) != 0x7c00u;
  return bit_cast<float>(sign | (finite ? bit_cast<uint32_t>(value) : rest | 0x7f800000u));
}

// To the nearest, ties to even; NaN stays NaN.
inline void narrow(float value, BFloat16& stored) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  stored.bits = static_cast<uint16_t>(value != value ? (bits >> 16) | 0x40u : rounded);
}

inline void narrow(float value, Half& stored) {
  const uint32_t bits = bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // from the tie above half's largest value on: infinity
  } else if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 leaves the significand's last bits at half's smallest step.
    half = bit_cast<uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  stored.bits = static_cast<uint16_t>(sign | half);
}

// Any dtype as float or double, as a cast does it; every type as itself.
template <typename Real, typename Stored>
inline Real to_value(Stored stored) {
  if constexpr (std::is_same_v<Stored, Real>)
    return stored;
  else if constexpr (std::is_same_v<Stored, bool>)
    return stored ? Real(1) : Real(0);
  else if constexpr (std::is_arithmetic_v<Stored>)
    return static_cast<Real>(stored);
  else
    return widen(stored);
}

// Real as a floating dtype, rounded to the nearest.
template <typename Stored, typename Real>
inline Stored from_real(Real value) {
  if constexpr (std::is_floating_point_v<Stored>) {
    return static_cast<Stored>(value);
  } else {
    Stored stored;
    narrow(static_cast<float>(value), stored);
    return stored;
  }
}

#if defined(__F16C__) && defined(__AVX2__)
// Compilers vectorise the formulas above poorly.
template <typename Stored, typename Real>
constexpr bool kInVectors = (std::is_same_v<Stored, Half> || std::is_same_v<Stored, BFloat16>) &&
                            std::is_same_v<Real, float>;

// Eight numbers.
inline __m256 widened(const Half* stored) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(stored)));
}
inline __m256 widened(const BFloat16* stored) {
  const __m128i upper = _mm_loadu_si128(reinterpret_cast<const __m128i*>(stored));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 16));
}

// The bits of eight bfloat16, each in 32.
inline __m256i narrowed(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, unordered);
}

// Sixteen numbers, in the type that the pointer has.
inline __m256i packed(const float* values, const Half*) {
  const __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(values), _MM_FROUND_TO_NEAREST_INT);
  const __m128i high = _mm256_cvtps_ph(_mm256_loadu_ps(values + 8), _MM_FROUND_TO_NEAREST_INT);
  return _mm256_set_m128i(high, low);
}
inline __m256i packed(const float* values, const BFloat16*) {
  const __m256i low = narrowed(_mm256_loadu_ps(values));
  const __m256i high = narrowed(_mm256_loadu_ps(values + 8));
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}
#endif

template <typename Stored, typename Real>
inline void widen_run(const Stored* __restrict stored, Real* __restrict values, int64_t count) {
  int64_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  if constexpr (kInVectors<Stored, Real>)
    for (; i + 8 <= count; i += 8) _mm256_storeu_ps(values + i, widened(stored + i));
#endif
  for (; i < count; ++i) values[i] = to_value<Real>(stored[i]);
}

// Results are stored in whole vectors of 32 bytes, as they are read again at once: a read that
// takes two stores together waits for both.
template <typename Real, typename Stored>
inline void narrow_run(const Real* __restrict values, Stored* __restrict stored, int64_t count) {
  int64_t i = 0;
#if defined(__F16C__) && defined(__AVX2__)
  if constexpr (kInVectors<Stored, Real>)
    for (; i + 16 <= count; i += 16)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(stored + i), packed(values + i, stored));
#endif
  for (; i < count; ++i) stored[i] = from_real<Stored>(values[i]);
}

template <typename Stored>
constexpr DType kDTypeOf = std::is_same_v<Stored, double>     ? DType::float64
                           : std::is_same_v<Stored, Half>     ? DType::float16
                           : std::is_same_v<Stored, BFloat16> ? DType::bfloat16
                                                              : DType::float32;

// Calls use(Stored()) with the type of a dtype.
template <typename Use>
auto with_type(DType dtype, Use use) {
  return with_type_of<Half, BFloat16>(dtype, use);
}

// One element of any dtype.
inline double read_number(const void* data, DType dtype, int64_t element = 0) {
  return with_type(dtype, [&](auto stored) {
    return to_value<double>(static_cast<const decltype(stored)*>(data)[element]);
  });
}

// As with_type(), for the dtypes that a loss or a gradient may have.
template <typename Use>
auto with_floating_type(DType dtype, Use use) {
  return with_floating_type_of<Half, BFloat16>(dtype, use);
}

}  // namespace losscli::cpu
