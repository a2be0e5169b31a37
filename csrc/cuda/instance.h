// The entry points of one loss in one dtype.
#pragma once

#include "elementwise.h"

namespace losscli::cuda {

struct Instance {
  size_t (*loss_workspace)(const LossArguments&);
  void (*loss)(const LossArguments&, const LaunchContext&);
  size_t (*shared_gradient_workspace)(const SharedGradientArguments&);
  void (*shared_gradient)(const SharedGradientArguments&, const LaunchContext&);
  void (*double_backward)(const DoubleBackwardArguments&, const LaunchContext&);  // or null
};

#define LOSSCLI_JOIN_(a, b) a##_##b
#define LOSSCLI_JOIN(a, b) LOSSCLI_JOIN_(a, b)

}  // namespace losscli::cuda
