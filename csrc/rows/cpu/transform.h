// Temperature and softcap of cross entropy.
#pragma once

#include <cstdint>

#include "core/vector_math.h"
#include "rows/kernels.h"

namespace losscli::cpu {

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
  // where 1 - tanh(u)^2 cancels. A gradient of 0 stays so, as of an ignored row whose logits are
  // NaN.
  void multiply_slopes(const double* logits, double* gradients, int64_t count) const {
    const double divisor = temperature, cap = softcap;
    for (int64_t i = 0; i < count; ++i) {
      const double u = logits[i] / divisor / cap;
      const double q = vector_math::exponential(-2 * vector_math::magnitude(u));
      const double slope = 4 * q / ((1 + q) * (1 + q));
      gradients[i] = gradients[i] == 0 ? 0 : gradients[i] * slope;
    }
  }
};

}  // namespace losscli::cpu
