// Losses of elements on tensors of one real device, below the dispatcher: checks, layout, launch.
#pragma once

#include "torch/call.h"
#include "torch/registry.h"

namespace losscli {

struct LossDefinition final : Definition {
  Attached<Kernels> kernels{};
  Attached<Kernels> strategies{};  // with the strategies in a table of their own

  bool has_kernels(const Call& call, const at::Device& device) const override;
  at::ScalarType type_of(TensorList operands) const override;
  bool pays_ahead(const Call& call, TensorList operands) const override;
  LossAndGradients compute_loss(const Call& call, TensorList operands, const Wanted& wanted,
                                Expectation* expectation) const override {
    return compute_loss(call, operands, wanted, expectation, {});
  }
  Tensors compute_gradients(const Call& call, const at::Tensor& grad_output, TensorList operands,
                            const Wanted& wanted,
                            Expectation* expectation = nullptr) const override;
  Tensors check_gradients(const Call& call, const at::Tensor& grad_output, TensorList operands,
                          Tensors gradients, Expectation* expectation) const override;

  // Where nothing is expected, the gradients are for `grad_output`, one element, if it is defined.
  LossAndGradients compute_loss(const Call& call, TensorList operands, const Wanted& wanted,
                                Expectation* expectation, const at::Tensor& grad_output) const;

  // For grad_output, then for each operand: the gradients of the sum over all operands of the
  // scalar product of their gradient with `vectors`.
  c10::SmallVector<at::Tensor, kMostOperands + 1> compute_second_derivatives(
      const Call& call, TensorList vectors, const at::Tensor& grad_output,
      TensorList operands) const;
};

// A gradient of the broadcast shape, as its operand has it: without leading ones.
at::Tensor as_operand(const at::Tensor& gradient, const at::Tensor& operand);

}  // namespace losscli
