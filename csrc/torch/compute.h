// The losses on tensors of one real device, below the dispatcher: checks, layout, launch.
#pragma once

#include "torch/call.h"

namespace losscli {

struct LossCall : CallOf<LossDefinition, kMostParameters> {
  Strategy strategy = Strategy::single_pass;

  size_t operands() const { return loss->operands(); }
};

// Throws ValueError for another word.
Strategy parse_strategy(std::string_view name);

// Whether the kernels of a call are attached.
bool has_kernels(const LossCall& call, const at::Device& device);

// Throws TypeError, RuntimeError where no loss takes these tensors, ValueError for a parameter out
// of its domain.
void check_call(const LossCall& call, at::ArrayRef<at::Tensor> operands);

// The dtype that operands are promoted to.
at::ScalarType promoted_type(at::ArrayRef<at::Tensor> operands);

inline at::ScalarType type_of(const LossCall&, at::ArrayRef<at::Tensor> operands) {
  return promoted_type(operands);
}

// The loss, and in the same pass the wanted gradients, of operands that have an element for each of
// the loss; that of an operand that is repeated is left undefined. They are for the incoming
// gradient that an expectation holds, if it does, else for `grad_output`, one element, or where
// that is undefined for 1.
LossAndGradients compute_loss(const LossCall& call, at::ArrayRef<at::Tensor> operands,
                              const Wanted& wanted, Expectation* expectation,
                              const at::Tensor& grad_output = {});

// Whether it may pay to write gradients of a loss of these operands ahead.
bool pays_ahead(const LossCall& call, at::ArrayRef<at::Tensor> operands);

// The gradients for any incoming gradient, from which an expectation learns if there is one;
// undefined where not asked for.
Tensors compute_gradients(const LossCall& call, const at::Tensor& grad_output,
                          at::ArrayRef<at::Tensor> operands, const Wanted& wanted,
                          Expectation* expectation = nullptr);

// Makes the gradients that compute_loss wrote right for the incoming gradient, in place: nothing
// to do where it is the expected one, which the device sees by itself. Returns them as their
// operands have them.
Tensors check_gradients(const LossCall& call, const at::Tensor& grad_output,
                        at::ArrayRef<at::Tensor> operands, Tensors gradients,
                        Expectation* expectation);

// A gradient of the broadcast shape, as its operand has it: without leading ones.
at::Tensor as_operand(const at::Tensor& gradient, const at::Tensor& operand);

// For grad_output, then for each operand: the gradients of the sum over all operands of the scalar
// product of their gradient with `vectors`.
c10::SmallVector<at::Tensor, kMostOperands + 1> compute_second_derivatives(
    const LossCall& call, at::ArrayRef<at::Tensor> vectors, const at::Tensor& grad_output,
    at::ArrayRef<at::Tensor> operands);

}  // namespace losscli
