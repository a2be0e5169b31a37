// The entry points of a library, each in a file of its own.
#pragma once

#include "elementwise/kernels.h"

namespace losscli::cpu {

int64_t partial_sums(const ElementwiseArguments& arguments, const DeviceFacts&);
Status elementwise(const ElementwiseArguments& arguments, const LaunchContext& context);
Status shared_gradient(const SharedGradientArguments& arguments, const LaunchContext& context);
Status second_derivatives(const SecondDerivativeArguments& arguments, const LaunchContext& context);

}  // namespace losscli::cpu
