// The one loss that this library is compiled for.
#pragma once

#include "elementwise/kernels.h"
#include LOSSCLI_LOSS_HEADER

namespace losscli::cpu {

template <typename Real>
using Loss = LOSSCLI_LOSS<Real>;

constexpr int kOperands = Loss<float>::signature.operands;
static_assert(kOperands <= kMostOperands);

}  // namespace losscli::cpu
