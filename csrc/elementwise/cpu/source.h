// An operand in memory. Only its conversions know its dtype, so that the code that walks it is
// compiled once.
#pragma once

#include <cstdint>

namespace losscli::cpu {

template <typename Value>
struct Source {
  const char* data = nullptr;
  int64_t item = 0;       // bytes of an element
  bool is_value = false;  // whether the elements are Value
  // Converts elements that lie side by side, and such as lie `stride` elements apart.
  void (*run)(const void* from, Value* to, int64_t count) = nullptr;
  void (*strided)(const void* from, int64_t stride, Value* to, int64_t count) = nullptr;

  const char* at(int64_t offset) const { return data + offset * item; }
};

}  // namespace losscli::cpu
