// The functions of core/math.h, each in a loop over floats and one over doubles. A line holds one
// function: the compiler's remarks name lines.
#include <cstdint>

#include "core/math.h"

#define LOOP(name, Real, ...)                                                         \
  extern "C" __attribute__((visibility("default"))) void name##_##Real(               \
      const Real* __restrict in, Real* __restrict out, int64_t count, double given) { \
    [[maybe_unused]] const Real exponent = static_cast<Real>(given);                  \
    [[maybe_unused]] const Real rest = static_cast<Real>(given - exponent);           \
    for (int64_t i = 0; i < count; ++i) out[i] = losscli::name(in[i] __VA_ARGS__);    \
  }
#define LOOPS(name, ...) LOOP(name, float, __VA_ARGS__) LOOP(name, double, __VA_ARGS__)

// begin
LOOPS(exponential)
LOOPS(exponential_minus_one)
LOOPS(logarithm)
LOOPS(log_of_one_plus)
LOOPS(hyperbolic_tangent)
LOOPS(sigmoid)
LOOPS(softplus)
LOOPS(power, , exponent, rest)
