// The elements of a row in packs of 16 bytes: where they lie, how they are read and written.
#pragma once

#include <cstdint>

#include "core/cuda/memory.cuh"
#include "rows/kernels.h"

namespace losscli::cuda {

// The packs of a row begin where the first operand has multiples of 16 bytes: the first and the
// last may be part of a pack. An operand that lies otherwise is read and written an element at a
// time.
template <typename Stored>
struct PackedRow {
  static constexpr int kCount = kPackBytes / static_cast<int>(sizeof(Stored));

  int shift = 0;  // elements of the first pack that lie before the row
  int64_t length = 0;
  int64_t packs = 0;

  __device__ __forceinline__ PackedRow(const void* first, int64_t stride, int64_t length)
      : length(length) {
    const auto address = reinterpret_cast<uintptr_t>(first);
    shift = stride == 1 ? static_cast<int>(address % kPackBytes / sizeof(Stored)) : 0;
    packs = (shift + length + kCount - 1) / kCount;
  }

  // Whether whole packs of a row are whole packs in memory.
  __device__ __forceinline__ bool lies_so(const void* row, int64_t stride) const {
    const auto address = reinterpret_cast<uintptr_t>(row);
    return stride == 1 && address % kPackBytes == shift * sizeof(Stored);
  }

  __device__ __forceinline__ int64_t first_of(int64_t pack) const { return pack * kCount - shift; }
  __device__ __forceinline__ bool is_whole(int64_t first) const {
    return first >= 0 && first + kCount <= length;
  }

  // The same of the packs from one to another.
  __device__ __forceinline__ bool are_whole(int64_t from, int64_t to) const {
    return (from > 0 || shift == 0) && (to + 1) * kCount <= shift + length;
  }

  __device__ __forceinline__ Pack<Stored> read_whole_pack(const Stored* row, int64_t pack) const {
    return read<true>(reinterpret_cast<const Pack<Stored>*>(row + first_of(pack)));
  }

  __device__ __forceinline__ Pack<Stored> read_pack(const Stored* row, int64_t stride, bool packed,
                                                    int64_t pack, Stored padding) const {
    const int64_t first = first_of(pack);
    if (packed && is_whole(first)) return read_whole_pack(row, pack);
    Pack<Stored> found;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t at = first + i;
      found.values[i] = at >= 0 && at < length ? row[at * stride] : padding;
    }
    return found;
  }

  __device__ __forceinline__ void write_pack(Stored* row, int64_t stride, bool packed, int64_t pack,
                                             const Pack<Stored>& from) const {
    const int64_t first = first_of(pack);
    if (packed && is_whole(first)) {
      *reinterpret_cast<Pack<Stored>*>(row + first) = from;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t at = first + i;
      if (at >= 0 && at < length) row[at * stride] = from.values[i];
    }
  }
};

}  // namespace losscli::cuda
