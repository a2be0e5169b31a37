// Between the dtype in memory and the Real that is computed with, a tile at a time.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

#include "elementwise.h"

namespace losscli::cpu {

struct Half {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

inline float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float widen(float stored) { return stored; }
inline double widen(double stored) { return stored; }
inline float widen(BFloat16 stored) { return as_float(uint32_t{stored.bits} << 16); }

inline float widen(Half stored) {
  const uint32_t sign = uint32_t{stored.bits & 0x8000u} << 16;
  const uint32_t rest = uint32_t{stored.bits & 0x7fffu} << 13;
  // 2^112 moves half's exponent bias to float's and normalises half's subnormals.
  const float value = as_float(rest) * 0x1p112f;
  const bool finite = (stored.bits & 0x7c00u) != 0x7c00u;
  return as_float(sign | (finite ? as_bits(value) : rest | 0x7f800000u));
}

inline void narrow(float value, float& stored) { stored = value; }
inline void narrow(double value, double& stored) { stored = value; }

// To the nearest, ties to even; NaN stays NaN.
inline void narrow(float value, BFloat16& stored) {
  const uint32_t bits = as_bits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  stored.bits = static_cast<uint16_t>(value != value ? (bits >> 16) | 0x40u : rounded);
}

inline void narrow(float value, Half& stored) {
  const uint32_t bits = as_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;  // NaN
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // from the tie above half's largest value on: infinity
  } else if (magnitude < 0x38800000u) {
    // Subnormal: adding 0.5 leaves the significand's last bits at half's smallest step.
    half = as_bits(as_float(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  stored.bits = static_cast<uint16_t>(sign | half);
}

template <typename Stored>
void widen(const Stored* stored, RealOf<Stored>* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = widen(stored[i]);
}

template <typename Stored>
void narrow(const RealOf<Stored>* values, Stored* stored, int64_t count) {
  for (int64_t i = 0; i < count; ++i) narrow(values[i], stored[i]);
}

#ifdef __F16C__
// Compilers vectorise the formulas above poorly; the processor has instructions for half.
template <>
inline void widen<Half>(const Half* stored, float* values, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(stored + i));
    _mm256_storeu_ps(values + i, _mm256_cvtph_ps(halves));
  }
  for (; i < count; ++i) values[i] = widen(stored[i]);
}

template <>
inline void narrow<Half>(const float* values, Half* stored, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(stored + i), halves);
  }
  for (; i < count; ++i) narrow(values[i], stored[i]);
}
#endif

}  // namespace losscli::cpu
