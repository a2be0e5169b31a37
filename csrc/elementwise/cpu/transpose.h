// Turns a matrix that lies across the order in which it is wanted, in blocks that use every line of
// memory whole.
#pragma once

#include <algorithm>
#include <cstdint>

#include "elementwise/cpu/convert.h"
#include "elementwise/cpu/stream.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace losscli::cpu {

// A block has so many elements each way: a line of memory.
template <typename Value>
constexpr int64_t kBlock = kLine / static_cast<int64_t>(sizeof(Value));

// Columns whose lines are asked for before they are turned. Each lies on a page of its own.
constexpr int64_t kColumnsAhead = 16;

#ifdef __AVX2__
// Small squares in registers; compilers make single loads and stores of them.
template <typename Value>
constexpr int64_t kSquare = sizeof(Value) == 8 ? 4 : 8;

inline void turn_square(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  __m256 in[8], pairs[8], quads[8];
  for (int i = 0; i < 8; ++i) in[i] = _mm256_loadu_ps(from + i * from_stride);
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(in[i], in[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(in[i], in[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int half = 0; half < 2; ++half) {
      const __m256 low = pairs[i + half], high = pairs[i + half + 2];
      quads[i + 2 * half] = _mm256_shuffle_ps(low, high, 0x44);
      quads[i + 2 * half + 1] = _mm256_shuffle_ps(low, high, 0xee);
    }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_stride,
                     _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31));
  }
}

inline void turn_square(const double* from, int64_t from_stride, double* to, int64_t to_stride) {
  __m256d in[4], pairs[4];
  for (int i = 0; i < 4; ++i) in[i] = _mm256_loadu_pd(from + i * from_stride);
  for (int i = 0; i < 4; i += 2) {
    pairs[i] = _mm256_unpacklo_pd(in[i], in[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_pd(in[i], in[i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    _mm256_storeu_pd(to + i * to_stride, _mm256_permute2f128_pd(pairs[i], pairs[i + 2], 0x20));
    _mm256_storeu_pd(to + (i + 2) * to_stride,
                     _mm256_permute2f128_pd(pairs[i], pairs[i + 2], 0x31));
  }
}

// Of 16 bits, whatever they mean.
template <typename Value>
inline void turn_square(const Value* from, int64_t from_stride, Value* to, int64_t to_stride) {
  static_assert(sizeof(Value) == 2);
  __m128i in[8], pairs[8], quads[8];
  for (int i = 0; i < 8; ++i)
    in[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * from_stride));
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm_unpacklo_epi16(in[2 * i], in[2 * i + 1]);
    pairs[i + 4] = _mm_unpackhi_epi16(in[2 * i], in[2 * i + 1]);
  }
  for (int half = 0; half < 8; half += 4)
    for (int i = 0; i < 2; ++i) {
      quads[half + i] = _mm_unpacklo_epi32(pairs[half + 2 * i], pairs[half + 2 * i + 1]);
      quads[half + i + 2] = _mm_unpackhi_epi32(pairs[half + 2 * i], pairs[half + 2 * i + 1]);
    }
  for (int i = 0; i < 8; i += 2) {
    const __m128i left = quads[i], right = quads[i + 1];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * to_stride),
                     _mm_unpacklo_epi64(left, right));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (i + 1) * to_stride),
                     _mm_unpackhi_epi64(left, right));
  }
}
#else
template <typename Value>
constexpr int64_t kSquare = 1;

template <typename Value>
inline void turn_square(const Value* from, int64_t, Value* to, int64_t) {
  *to = *from;
}
#endif

// A whole block.
template <typename Value>
__attribute__((noinline)) void turn(const Value* from, int64_t from_stride, Value* to,
                                    int64_t to_stride) {
  for (int64_t row = 0; row < kBlock<Value>; row += kSquare<Value>)
    for (int64_t column = 0; column < kBlock<Value>; column += kSquare<Value>)
      turn_square(from + column * from_stride + row, from_stride, to + row * to_stride + column,
                  to_stride);
}

// Element (row, column) of `to` is element offset + row * row_stride + column * column_stride of
// the source.
template <typename Value, typename Source>
void transpose(const Source& source, int64_t offset, int64_t column_stride, int64_t row_stride,
               int64_t columns, int64_t rows, Value* to, int64_t to_stride) {
  constexpr int64_t kSide = kBlock<Value>;
  const bool in_place = source.is_value && row_stride == 1;
  const int64_t line = column_stride * source.item;
  alignas(kLine) Value block[kSide * kSide];
  // All rows of a few columns before the next columns: a column is a page of memory.
  for (int64_t column = 0; column < columns; column += kSide) {
    const int64_t width = std::min(kSide, columns - column);
    for (int64_t row = 0; row < rows; row += kSide) {
      const int64_t height = std::min(kSide, rows - row);
      Value* const out = to + row * to_stride + column;
      const char* const from = source.at(offset + row * row_stride + column * column_stride);
      for (int64_t i = 0; i < width; ++i) __builtin_prefetch(from + (i + kColumnsAhead) * line);
      const bool whole = height == kSide && width == kSide;
      if (whole && in_place) {
        turn(reinterpret_cast<const Value*>(from), column_stride, out, to_stride);
        continue;
      }
      for (int64_t i = 0; i < width; ++i)
        row_stride == 1 ? source.run(from + i * line, block + i * kSide, height)
                        : source.strided(from + i * line, row_stride, block + i * kSide, height);
      if (whole) {
        turn(block, kSide, out, to_stride);
        continue;
      }
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j) out[i * to_stride + j] = block[j * kSide + i];
    }
  }
}

}  // namespace losscli::cpu
