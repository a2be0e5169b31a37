// The elements of a row as Real, a group at a time, and how rows are handed out to threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/operand.h"
#include "elementwise/cpu/convert.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// Elements that are computed together: a few vectors, so that their operations overlap.
constexpr int kGroup = 64;

// What a row's exponentials take at most where they are kept: half of a second-level cache. Beyond
// it they are computed again.
constexpr int64_t kKeptBytes = int64_t{1} << 19;

// Rows are handed out in chunks: few enough that waking a thread pays, enough for equal shares. A
// sum is kept for each, so that the result does not depend on the number of threads.
constexpr int64_t kChunks = 128, kChunkElements = int64_t{1} << 14;

inline int64_t rows_of_chunk(int64_t rows, int64_t length) {
  return std::max(divide_up(rows, kChunks),
                  divide_up(kChunkElements, std::max<int64_t>(length, 1)));
}

// The weight of a class; 1 where there are none.
template <typename Stored>
double class_weight(const RowArguments& arguments, int64_t number) {
  const auto* const weight = static_cast<const Stored*>(arguments.weight);
  return weight ? to_value<double>(weight[number]) : 1.0;
}

// Elements of a row that lie `stride` apart.
template <typename Stored>
struct Strided {
  const Stored* data = nullptr;
  int64_t stride = 1;

  Strided() = default;
  // A row of operand `k`.
  Strided(const RowArguments& arguments, int k, int64_t row)
      : data(static_cast<const Stored*>(arguments.operands[k]) +
             arguments.strides[k].start(row, arguments.inner)),
        stride(arguments.strides[k].element) {}

  // Elements [first, first + count), at most a group, as Real: where they lie just so in memory, or
  // in the buffer, of which the rest is `padding`.
  template <typename Real>
  const Real* take(int64_t first, int64_t count, Real* buffer, Real padding) const {
    if constexpr (std::is_same_v<Stored, Real>)
      if (stride == 1 && count == kGroup) return data + first;
    fill(first, count, buffer);
    std::fill(buffer + count, buffer + kGroup, padding);
    return buffer;
  }

  template <typename Real>
  void fill(int64_t first, int64_t count, Real* buffer) const {
    if (stride != 1)
      for (int64_t i = 0; i < count; ++i) buffer[i] = to_value<Real>(data[(first + i) * stride]);
    else
      widen_run(data + first, buffer, count);
  }
};

}  // namespace losscli::cpu
