// Dtypes in memory, the Real they are computed in, and reading and writing 16 bytes at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"

namespace losscli::cuda {

template <DType dtype>
struct StoredAs {
  using Type = std::conditional_t<
      dtype == DType::float64, double,
      std::conditional_t<dtype == DType::float16, __half,
                         std::conditional_t<dtype == DType::bfloat16, __nv_bfloat16, float>>>;
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

__device__ __forceinline__ void narrow(double value, float& stored) {
  stored = static_cast<float>(value);
}
__device__ __forceinline__ void narrow(double value, __half& stored) {
  stored = __double2half(value);
}
__device__ __forceinline__ void narrow(double value, __nv_bfloat16& stored) {
  stored = __double2bfloat16(value);
}
__device__ __forceinline__ void narrow(float value, double& stored) { stored = value; }

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

}  // namespace losscli::cuda
