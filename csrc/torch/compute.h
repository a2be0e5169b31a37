// The losses on tensors of one real device, below the dispatcher: checks, layout, launch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

#include "torch/registry.h"

namespace losscli {

// One loss with its settings, as an operator was called.
struct LossCall {
  LossDefinition* loss = nullptr;
  std::array<double, kMostParameters> parameters{};
  Reduction reduction = Reduction::mean;
  Strategy strategy = Strategy::single_pass;
  int64_t site = 0;  // calls of one site share what they expect of the incoming gradient

  const char* name() const { return loss->name.c_str(); }
  size_t operands() const { return loss->operands(); }
};

using Tensors = c10::SmallVector<at::Tensor, kMostOperands>;
using Wanted = std::array<bool, kMostOperands>;

// Throws ValueError for another word.
Reduction parse_reduction(std::string_view name);
Strategy parse_strategy(std::string_view name);

// Whether the kernels of a call are attached.
bool has_kernels(const LossCall& call, const at::Device& device);

// Throws TypeError, RuntimeError where no loss takes these tensors, ValueError for a parameter out
// of its domain.
void check_call(const LossCall& call, at::ArrayRef<at::Tensor> operands);

// The dtype that operands are promoted to.
at::ScalarType promoted_type(at::ArrayRef<at::Tensor> operands);

struct LossAndGradients {
  at::Tensor loss;
  Tensors gradients;  // one for each operand, undefined where none was written
};

// The loss, and in the same pass the wanted gradients, of operands that have an element for each of
// the loss; that of an operand that is repeated is left undefined. They are for the incoming
// gradient that an expectation holds, if it does, else for `grad_output`, one element, or where
// that is undefined for 1.
LossAndGradients compute_loss(const LossCall& call, at::ArrayRef<at::Tensor> operands,
                              const Wanted& wanted, const at::Tensor& grad_output,
                              Expectation* expectation);

// Whether it may pay to write gradients of a loss of these operands ahead.
bool pays_ahead(const LossCall& call, at::ArrayRef<at::Tensor> operands);

// The gradients for any incoming gradient, from which an expectation learns if there is one;
// undefined where not asked for.
Tensors compute_gradients(const LossCall& call, const at::Tensor& grad_output,
                          at::ArrayRef<at::Tensor> operands, const Wanted& wanted,
                          Expectation* expectation = nullptr);

// Makes the gradients that compute_loss wrote right for the incoming gradient, in place: nothing
// to do where it is the expected one, which the device sees by itself.
void check_gradients(const LossCall& call, const at::Tensor& grad_output,
                     at::ArrayRef<at::Tensor> operands, at::ArrayRef<at::Tensor> gradients,
                     Expectation* expectation);

// A gradient of the broadcast shape, as its operand has it: without leading ones.
at::Tensor as_operand(const at::Tensor& gradient, const at::Tensor& operand);

// For grad_output, then for each operand: the gradients of the sum over all operands of the scalar
// product of their gradient with `vectors`.
c10::SmallVector<at::Tensor, kMostOperands + 1> compute_second_derivatives(
    const LossCall& call, at::ArrayRef<at::Tensor> vectors, const at::Tensor& grad_output,
    at::ArrayRef<at::Tensor> operands);

}  // namespace losscli
