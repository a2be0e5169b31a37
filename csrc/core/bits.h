// The bits of a number, and back.
#pragma once

#include <cstring>

namespace losscli {

template <typename To, typename From>
To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "of one size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace losscli
