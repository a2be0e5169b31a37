// Copies from global to shared memory: those of which barriers count the bytes (compute capability
// 9.0 and newer), and those that a thread waits for itself (8.0 and newer).
#pragma once

#include <cstdint>

namespace losscli::cuda::bulk {

__device__ __forceinline__ uint32_t address_of(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void initialise(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// After memory was written to, and before a copy fills it again: these are of different proxies.
__device__ __forceinline__ void fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// After barriers were initialised, before anything arrives.
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Copies so many bytes, 2, 4 or 16, without waiting where the GPU can.
__device__ __forceinline__ void copy(void* to, const void* from, int bytes) {
  const auto place = static_cast<uint32_t>(__cvta_generic_to_shared(to));
#if __CUDA_ARCH__ >= 800
  if (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
  else if (bytes == 4)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(from) : "memory");
#else
  if (bytes == 16)
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  else if (bytes == 4)
    *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(from);
#endif
  else {
    // By their kinds of memory: some are read before the first is written.
    uint16_t word;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(word) : "l"(from));
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(place), "h"(word) : "memory");
  }
}

// Ends a group of copies.
__device__ __forceinline__ void commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all but the last groups, so many.
template <int groups>
__device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}

__device__ __forceinline__ void wait_all() {
  commit();
  wait<0>();
}

}  // namespace losscli::cuda::bulk
