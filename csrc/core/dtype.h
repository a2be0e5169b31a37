// The dtypes that an operand may have in memory, and the type that each is computed in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/platform.h"

namespace losscli {

// A loss is computed and returned in one of the first four; an operand that needs no gradient may
// hold integers.
enum class DType : int32_t {
  float32,
  float64,
  float16,
  bfloat16,
  int64,
  int32,
  int16,
  int8,
  uint8,
  boolean,
};

// Looked up, not chosen: kernels ask for each operand.
LOSSCLI_HOST_DEVICE constexpr int item_bytes(DType dtype) {
  constexpr uint64_t kBytes = 0x1112482284;  // a digit each, the first dtype's last
  return static_cast<int>(kBytes >> (4 * static_cast<int>(dtype)) & 15);
}

static_assert(item_bytes(DType::float32) == 4 && item_bytes(DType::float64) == 8 &&
                  item_bytes(DType::float16) == 2 && item_bytes(DType::bfloat16) == 2 &&
                  item_bytes(DType::int64) == 8 && item_bytes(DType::int32) == 4 &&
                  item_bytes(DType::int16) == 2 && item_bytes(DType::int8) == 1 &&
                  item_bytes(DType::uint8) == 1 && item_bytes(DType::boolean) == 1,
              "in the order of the dtypes");

// The type computed with, for a type in memory: float, but for double.
template <typename Stored>
using RealOf = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

// Calls use(Stored()) with the type of a dtype that a loss or a gradient may have; those of 16 bits
// are the device's.
LOSSCLI_ANY_BODY
template <typename Half, typename BFloat16, typename Use>
LOSSCLI_HOST_DEVICE auto with_floating_type_of(DType dtype, Use use) {
  switch (dtype) {
    case DType::float32:
      return use(float());
    case DType::float16:
      return use(Half());
    case DType::bfloat16:
      return use(BFloat16());
    default:
      return use(double());
  }
}

// The same for all dtypes.
LOSSCLI_ANY_BODY
template <typename Half, typename BFloat16, typename Use>
LOSSCLI_HOST_DEVICE auto with_type_of(DType dtype, Use use) {
  switch (dtype) {
    case DType::int64:
      return use(int64_t());
    case DType::int32:
      return use(int32_t());
    case DType::int16:
      return use(int16_t());
    case DType::int8:
      return use(int8_t());
    case DType::uint8:
      return use(uint8_t());
    case DType::boolean:
      return use(bool());
    default:
      return with_floating_type_of<Half, BFloat16>(dtype, use);
  }
}

}  // namespace losscli
