// Division by a number that is known before the launch: by multiplication (Granlund and Montgomery,
// 1994), as the hardware has no instruction for it.
#pragma once

#include <cstdint>

#include "core/platform.h"

namespace losscli::cuda {

// Divides numbers of 0 to 2^63 - 1 by 1 to 2^62.
struct Divisor {
  int64_t value = 1;
  uint64_t magic = 0;  // 0 stands for a division by 1
  uint32_t magic32 = 0;
  uint32_t shift = 0;

  Divisor() = default;

  explicit Divisor(int64_t value) : value(value < 1 ? 1 : value) {
    if (this->value == 1) return;
    const auto divisor = static_cast<uint64_t>(this->value);
    const unsigned power = 64 - static_cast<unsigned>(__builtin_clzll(divisor - 1));
    shift = power - 1;
    magic =
        static_cast<uint64_t>((static_cast<unsigned __int128>(1) << (63 + power)) / divisor) + 1;
    if (divides_small())
      magic32 = static_cast<uint32_t>((uint64_t{1} << (31 + power)) / divisor) + 1;
  }

  // Whether divide_small() may be asked.
  LOSSCLI_HOST_DEVICE bool divides_small() const { return value < int64_t{1} << 30; }

#ifdef __CUDACC__
  __device__ __forceinline__ int64_t divide(int64_t dividend) const {
    if (magic == 0) return dividend;
    return static_cast<int64_t>(__umul64hi(static_cast<uint64_t>(dividend), magic) >> shift);
  }

  // Of numbers below 2^31.
  __device__ __forceinline__ unsigned divide_small(unsigned dividend) const {
    return magic32 == 0 ? dividend : __umulhi(dividend, magic32) >> shift;
  }
#endif
};

}  // namespace losscli::cuda
