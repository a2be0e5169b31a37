// An operand in memory. Only its conversions know its dtype, so that the code that walks it is
// compiled once.
#pragma once

#include <cstdint>

namespace losscli::cpu {

template <typename Real>
struct Source {
  const char* data = nullptr;
  int64_t item = 0;      // bytes of an element
  bool is_real = false;  // whether the elements are Real
  // Converts elements that lie side by side, and such as lie `stride` elements apart.
  void (*run)(const void* from, Real* to, int64_t count) = nullptr;
  void (*strided)(const void* from, int64_t stride, Real* to, int64_t count) = nullptr;

  const char* at(int64_t offset) const { return data + offset * item; }
};

}  // namespace losscli::cpu
