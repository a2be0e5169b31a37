// What the library of one loss exports.
#include "elementwise/cpu/loss.h"

namespace losscli::cpu {
namespace {

constexpr auto& kSignature = Loss<double>::signature;

Needs nothing(const ElementwiseArguments&, const DeviceFacts&) { return {}; }
Needs nothing_shared(const SharedGradientArguments&, const DeviceFacts&) { return {}; }

const Kernels kernels{
    kInterface,
    kOperands,
    kSignature.parameter_total,
    kSignature.parameters.data(),
    0,
    partial_sums,
    nothing,
    elementwise,
    nothing_shared,
    shared_gradient,
    second_derivatives,
};

}  // namespace
}  // namespace losscli::cpu

LOSSCLI_EXPORT const losscli::Kernels* losscli_kernels() { return &losscli::cpu::kernels; }
