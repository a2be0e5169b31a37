// Losses over rows on tensors of one real device, below the dispatcher: checks, strides, launch.
#pragma once

#include "torch/call.h"

namespace losscli {

struct RowCall : CallOf<RowLossDefinition, kMostRowParameters> {
  // Values of a row.
  int outputs() const {
    return loss->doubling >= 0 && parameters[static_cast<size_t>(loss->doubling)] != 0 ? 2 : 1;
  }
};

// The sizes or strides of all dimensions of a tensor but that of a row.
inline c10::SmallVector<int64_t, 5> without_row(const RowCall& call, at::IntArrayRef of) {
  c10::SmallVector<int64_t, 5> others(of.begin(), of.end());
  if (!of.empty()) others.erase(others.begin() + call.loss->row_dimension(others.size()));
  return others;
}

// Whether the kernels of a call are attached.
bool has_kernels(const RowCall& call, const at::Device& device);

// Throws TypeError, ValueError, RuntimeError where no loss takes these tensors.
void check_call(const RowCall& call, at::ArrayRef<at::Tensor> operands);

// The dtype that the operands are promoted to: the rows, and without class numbers the weight.
at::ScalarType type_of(const RowCall& call, at::ArrayRef<at::Tensor> operands);

// The loss, and in the same pass the gradients that are wanted, in its dtype, for the incoming
// gradient that an expectation holds, or for 1.
LossAndGradients compute_loss(const RowCall& call, at::ArrayRef<at::Tensor> operands,
                              const Wanted& wanted, Expectation* expectation);

// The same with the gradient of the first operand written over it.
at::Tensor compute_loss_in_place(const RowCall& call, at::ArrayRef<at::Tensor> operands);

// Whether it may pay to write gradients ahead.
bool pays_ahead(const RowCall& call, at::ArrayRef<at::Tensor> operands);

// The gradients that are wanted for any incoming gradient, from which an expectation learns if
// there is one.
Tensors compute_gradients(const RowCall& call, const at::Tensor& grad_output,
                          at::ArrayRef<at::Tensor> operands, const Wanted& wanted,
                          Expectation* expectation = nullptr);

// Makes the gradients that compute_loss wrote right for the incoming gradient, in place: nothing
// to do where it is the expected one, which the device sees by itself. Returns them as their
// operands have them.
Tensors check_gradients(const RowCall& call, const at::Tensor& grad_output,
                        at::ArrayRef<at::Tensor> operands, Tensors gradients,
                        Expectation* expectation);

// A gradient as it leaves: in the operand's dtype, with the strides of empty_like(operand).
at::Tensor as_input(const at::Tensor& gradient, const at::Tensor& operand);

}  // namespace losscli
