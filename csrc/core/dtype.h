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

LOSSCLI_HOST_DEVICE constexpr int item_bytes(DType dtype) {
  return dtype == DType::float64 || dtype == DType::int64                           ? 8
         : dtype == DType::float32 || dtype == DType::int32                         ? 4
         : dtype == DType::int8 || dtype == DType::uint8 || dtype == DType::boolean ? 1
                                                                                    : 2;
}

// The type computed with, for a type in memory: float, but for double.
template <typename Stored>
using RealOf = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

}  // namespace losscli
