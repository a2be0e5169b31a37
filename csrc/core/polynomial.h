// A polynomial with its coefficients written out.
#pragma once

#include "core/platform.h"

namespace losscli {

// a + x * b, on a GPU in float as one instruction; on the host never fused, for the same bits
// whatever the processor has.
LOSSCLI_HOST_DEVICE double term(double a, double x, double b) { return a + x * b; }
LOSSCLI_HOST_DEVICE float term(float a, float x, float b) {
#ifdef __CUDA_ARCH__
  return __builtin_fmaf(x, b, a);
#else
  return a + x * b;
#endif
}

// first + x * (second + x * ...)
template <typename Real>
LOSSCLI_HOST_DEVICE Real polynomial(Real, Real last) {
  return last;
}
template <typename Real, typename... Rest>
LOSSCLI_HOST_DEVICE Real polynomial(Real x, Real first, Rest... rest) {
  return term(first, x, polynomial(x, rest...));
}

}  // namespace losscli
