// Dtypes in memory, the Real they are computed in, and reading and writing 16 bytes at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "elementwise.h"

namespace losscli::cuda {

template <DType dtype>
struct StoredAs;
template <>
struct StoredAs<DType::float32> {
  using Type = float;
};
template <>
struct StoredAs<DType::float64> {
  using Type = double;
};
template <>
struct StoredAs<DType::float16> {
  using Type = __half;
};
template <>
struct StoredAs<DType::bfloat16> {
  using Type = __nv_bfloat16;
};

__device__ __forceinline__ float widen(float stored) { return stored; }
__device__ __forceinline__ double widen(double stored) { return stored; }
__device__ __forceinline__ float widen(__half stored) { return __half2float(stored); }
__device__ __forceinline__ float widen(__nv_bfloat16 stored) { return __bfloat162float(stored); }

__device__ __forceinline__ void narrow(float value, float& stored) { stored = value; }
__device__ __forceinline__ void narrow(double value, double& stored) { stored = value; }
__device__ __forceinline__ void narrow(float value, __half& stored) {
  stored = __float2half_rn(value);
}
__device__ __forceinline__ void narrow(float value, __nv_bfloat16& stored) {
  stored = __float2bfloat16_rn(value);
}

constexpr int kPackBytes = 16;

// Neighbouring elements that are read at once: 16 bytes of them, unless asked for fewer.
template <typename Stored, int count = kPackBytes / sizeof(Stored)>
struct alignas(count * sizeof(Stored)) Pack {
  static constexpr int kCount = count;
  Stored values[count];
};

// Reads a pack, past the first level of the cache or through it.
template <bool past_first_level, typename Stored>
__device__ __forceinline__ Pack<Stored> read(const Pack<Stored>* pack) {
  if constexpr (!past_first_level) {
    return *pack;
  } else {
    union {
      uint4 raw;
      Pack<Stored> pack;
    } bits;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.raw.x), "=r"(bits.raw.y), "=r"(bits.raw.z), "=r"(bits.raw.w)
                 : "l"(pack));
    return bits.pack;
  }
}

__host__ __device__ __forceinline__ bool aligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kPackBytes == 0;
}

// A place less than twice round a circle, brought back into it.
__device__ __forceinline__ unsigned wrap(unsigned place, unsigned round) {
  return place < round ? place : place - round;
}

// The element of an operand that belongs to place `i` of the iteration space.
__device__ __forceinline__ int64_t element_at(const Operand& operand, int64_t i) {
  if (operand.period == 1) return 0;
  if (operand.inner == 1) return i < operand.period ? i : i % operand.period;
  return i / operand.inner % operand.period;
}

// Reads one operand within one tile: finds its place there once, by slow divisions, and from then
// on with none that a tile's small offsets do not need.
template <typename Stored, int kTile>
class TileReader {
 public:
  __device__ TileReader(const Operand& operand, int64_t base)
      : data_(static_cast<const Stored*>(operand.data)),
        inner_(operand.inner),
        period_(operand.period) {
    if (period_ == 1) {
      element_ = within_ = 0;
    } else if (inner_ == 1) {
      within_ = 0;
      element_ = base < period_ ? base : base % period_;
    } else {
      within_ = base % inner_;
      element_ = base / inner_ % period_;
    }
  }

  __device__ __forceinline__ Stored at(int offset) const { return data_[element(offset)]; }

  // The pack of elements for the places from `offset` on.
  __device__ __forceinline__ Pack<Stored> pack(int offset) const {
    using P = Pack<Stored>;
    P pack;
    const int64_t first = element(offset);
    if (inner_ == 1 && first + P::kCount <= period_ && aligned(data_ + first)) {
      pack = *reinterpret_cast<const P*>(data_ + first);
    } else if (period_ == 1 || (inner_ >= P::kCount && element(offset + P::kCount - 1) == first)) {
      const Stored value = data_[first];
#pragma unroll
      for (int i = 0; i < P::kCount; ++i) pack.values[i] = value;
    } else {
#pragma unroll
      for (int i = 0; i < P::kCount; ++i) pack.values[i] = at(offset + i);
    }
    return pack;
  }

 private:
  __device__ __forceinline__ int64_t element(int offset) const {
    if (period_ == 1) return 0;
    if (inner_ == 1) return wrap(element_ + offset);
    const int64_t moved = within_ + offset;
    if (inner_ >= kTile) return wrap(element_ + (moved >= inner_));
    return wrap(element_ + static_cast<uint32_t>(moved) / static_cast<uint32_t>(inner_));
  }

  __device__ __forceinline__ int64_t wrap(int64_t element) const {
    if (element < period_) return element;
    if (period_ >= kTile) return element - period_;
    return static_cast<uint32_t>(element) % static_cast<uint32_t>(period_);
  }

  const Stored* data_;
  int64_t inner_;
  int64_t period_;
  int64_t element_;
  int64_t within_;
};

}  // namespace losscli::cuda
