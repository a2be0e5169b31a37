// What autograd remembers of a call of a loss over rows.
#pragma once

#include "torch/nodes.h"
#include "torch/rows.h"

namespace losscli {

// Remembers a forward pass, and the gradient of the input that it has written already. Only the
// input's gradient is its own: where the target or the weight wants one, ATen's operators compute
// the loss (see rows_operators.cpp).
struct RowsBackward final : Node {
  explicit RowsBackward(const RowCall& call) : call(call) {}

  std::string name() const override;
  void release_variables() override;
  variable_list apply(variable_list&& grads) override;
  void compiled_args(CompiledNodeArgs& arguments) const override;
  variable_list apply_with_saved(const variable_list& grads, SwapSavedVariables& saved) override;

  void save(const RowOperands& operands);

  // Computes the loss on the device, and if `ahead` writes the gradient with it.
  at::Tensor compute(const RowOperands& operands, bool ahead);

  RowCall call;

 private:
  RowOperands unpack() const;
  at::Tensor take_written(const at::Tensor& grad_output, const RowOperands& operands);

  SavedVariable input_, target_, weight_;
  SeenOperands seen_;
  at::Tensor gradient_;
  Turn turn_;
};

}  // namespace losscli
