// Where the elements of a row lie: in whole vectors, or beside them.
#pragma once

#include "rows/cuda/state.cuh"

namespace losscli::cuda {

// The whole vectors of a row, which begin at multiples of 16 bytes, and the elements before the
// first and after the last: up to kCount - 1 each.
template <typename Stored>
struct RowSpan {
  using V = Vector<Stored>;
  int heads = 0, tails = 0, vectors = 0;

  RowSpan() = default;

  __device__ __forceinline__ RowSpan(const Stored* row, int64_t classes) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(row);
    heads = static_cast<int>((16 - start % 16) % 16 / sizeof(Stored));
    if (heads > classes) heads = static_cast<int>(classes);
    vectors = static_cast<int>(classes - heads) / V::kCount;
    tails = static_cast<int>(classes) - heads - vectors * V::kCount;
  }

  // The element of a thread besides its vectors; -1 where it has none.
  __device__ __forceinline__ int extra(int thread) const {
    if (thread < heads) return thread;
    const int tail = thread - V::kCount;
    return tail >= 0 && tail < tails ? heads + vectors * V::kCount + tail : -1;
  }
};

// Where an element of a row is: in a vector, or a thread's besides its vectors.
struct RowPlace {
  int vector = -1, element = 0, thread = -1;

  template <typename Stored>
  __device__ __forceinline__ RowPlace(const RowSpan<Stored>& span, int64_t number) {
    constexpr int kCount = Vector<Stored>::kCount;
    const int after = static_cast<int>(number) - span.heads;
    if (after < 0) {
      thread = static_cast<int>(number);
    } else if (after >= span.vectors * kCount) {
      thread = after - span.vectors * kCount + kCount;
    } else {
      vector = after / kCount;
      element = after % kCount;
    }
  }
};

}  // namespace losscli::cuda
