// The logits of a row, as Real and with temperature and softcap applied, a group at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/vector_math.h"
#include "elementwise/cpu/convert.h"
#include "rows/cross_entropy.h"

namespace losscli::cpu {

// Classes that are computed together: a few vectors, so that their operations overlap.
constexpr int kGroup = 64;

// What stands between the logits in memory and those that the loss is of. Computed in double: the
// logits' own error shows in the loss multiplied by their size.
struct Transform {
  double temperature = 1;
  double softcap = 0;

  explicit Transform(const RowArguments& arguments)
      : temperature(arguments.parameters[kTemperature]), softcap(arguments.parameters[kSoftcap]) {}

  bool wanted() const { return temperature != 1 || softcap != 0; }

  void apply(double* values, int64_t count) const {
    const double divisor = temperature, cap = softcap;
    for (int64_t i = 0; i < count; ++i) values[i] /= divisor;
    if (cap == 0) return;
    for (int64_t i = 0; i < count; ++i)
      values[i] = cap * vector_math::hyperbolic_tangent(values[i] / cap);
  }

  // Multiplies gradients by the derivative of the softcap at logits as they lie in memory; that of
  // the temperature is 1 / temperature everywhere. As 4q / (1 + q)^2 with q = e^-2|u| it is right
  // where 1 - tanh(u)^2 cancels.
  void multiply_slopes(const double* logits, double* gradients, int64_t count) const {
    const double divisor = temperature, cap = softcap;
    for (int64_t i = 0; i < count; ++i) {
      const double u = logits[i] / divisor / cap;
      const double q = vector_math::exponential(-2 * vector_math::magnitude(u));
      gradients[i] *= 4 * q / ((1 + q) * (1 + q));
    }
  }
};

// Elements of a row that lie `stride` apart.
template <typename Stored>
struct Strided {
  const Stored* data = nullptr;
  int64_t stride = 1;

  // Elements [first, first + count), at most a group, as Real: where they lie just so in memory, or
  // in the buffer, of which the rest is `padding`.
  template <typename Real>
  const Real* take(int64_t first, int64_t count, Real* buffer, Real padding) const {
    if constexpr (std::is_same_v<Stored, Real>)
      if (stride == 1 && count == kGroup) return data + first;
    fill(first, count, buffer);
    std::fill(buffer + count, buffer + kGroup, padding);
    return buffer;
  }

  template <typename Real>
  void fill(int64_t first, int64_t count, Real* buffer) const {
    if (stride != 1)
      for (int64_t i = 0; i < count; ++i) buffer[i] = to_value<Real>(data[(first + i) * stride]);
    else
      widen_run(data + first, buffer, count);
  }
};

}  // namespace losscli::cpu
