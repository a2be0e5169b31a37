// Turns a matrix that lies across the order in which it is wanted, in blocks that use every line of
// memory whole.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace losscli::cpu {

// A block of so many elements each way: a line of float or double each.
constexpr int64_t kBlock = 16;

// Columns whose lines are asked for before they are turned. Each lies on a page of its own.
constexpr int64_t kColumnsAhead = 32;

// Turns a whole block.
template <typename Value>
inline void turn(const Value* from, int64_t from_stride, Value* to, int64_t to_stride) {
  for (int64_t row = 0; row < kBlock; ++row)
    for (int64_t column = 0; column < kBlock; ++column)
      to[row * to_stride + column] = from[column * from_stride + row];
}

#ifdef __AVX2__
// Eight by eight in registers; compilers make 64 loads and stores of it.
inline void turn_eight(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
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

template <>
inline void turn<float>(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int64_t row = 0; row < kBlock; row += 8)
    for (int64_t column = 0; column < kBlock; column += 8)
      turn_eight(from + column * from_stride + row, from_stride, to + row * to_stride + column,
                 to_stride);
}
#endif

// Element (row, column) of `to` is element offset + row * row_stride + column * column_stride of
// the source.
template <typename Value, typename Source>
void transpose(const Source& source, int64_t offset, int64_t column_stride, int64_t row_stride,
               int64_t columns, int64_t rows, Value* to, int64_t to_stride) {
  const auto take = [&](int64_t column, int64_t row, int64_t count, Value* line) {
    const char* const from = source.at(offset + row * row_stride + column * column_stride);
    row_stride == 1 ? source.run(from, line, count) : source.strided(from, row_stride, line, count);
  };
  const bool in_place = source.is_value && row_stride == 1;
  alignas(64) Value block[kBlock * kBlock];
  for (int64_t row = 0; row < rows; row += kBlock) {
    const int64_t height = std::min(kBlock, rows - row);
    for (int64_t column = 0; column < columns; column += kBlock) {
      const int64_t width = std::min(kBlock, columns - column);
      Value* const out = to + row * to_stride + column;
      const char* const from = source.at(offset + row * row_stride + column * column_stride);
      const int64_t line = column_stride * source.item;
      for (int64_t i = 0; i < width; ++i) __builtin_prefetch(from + (i + kColumnsAhead) * line);
      if (in_place && height == kBlock && width == kBlock) {
        turn(reinterpret_cast<const Value*>(from), column_stride, out, to_stride);
        continue;
      }
      for (int64_t i = 0; i < width; ++i) take(column + i, row, height, block + i * kBlock);
      if (height == kBlock && width == kBlock) {
        turn(block, kBlock, out, to_stride);
        continue;
      }
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j) out[i * to_stride + j] = block[j * kBlock + i];
    }
  }
}

}  // namespace losscli::cpu
