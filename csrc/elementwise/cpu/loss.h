// The one loss that this library is compiled for, and its entry points, each in a file of its own.
#pragma once

#include "elementwise/kernels.h"
#include LOSSCLI_LOSS_HEADER

namespace losscli::cpu {

template <typename Real>
using Loss = LOSSCLI_LOSS<Real>;

constexpr int kOperands = Loss<float>::signature.operands;
static_assert(kOperands <= kMostOperands);

int64_t partial_sums(const ElementwiseArguments& arguments, const DeviceFacts&);
Status elementwise(const ElementwiseArguments& arguments, const LaunchContext& context);
Status shared_gradient(const SharedGradientArguments& arguments, const LaunchContext& context);
Status second_derivatives(const SecondDerivativeArguments& arguments, const LaunchContext& context);

}  // namespace losscli::cpu
