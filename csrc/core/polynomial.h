// A polynomial with its coefficients written out.
#pragma once

#include "core/platform.h"

namespace losscli {

// first + x * (second + x * ...)
template <typename Real>
LOSSCLI_HOST_DEVICE Real polynomial(Real, Real last) {
  return last;
}
template <typename Real, typename... Rest>
LOSSCLI_HOST_DEVICE Real polynomial(Real x, Real first, Rest... rest) {
  return first + x * polynomial(x, rest...);
}

}  // namespace losscli
