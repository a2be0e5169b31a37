// What autograd remembers of a call of a functor over rows.
#pragma once

#include "torch/functors.h"
#include "torch/nodes.h"

namespace losscli {

// Remembers a forward pass, and the gradients of the rows that it has written already.
struct FunctorBackward final : Node {
  explicit FunctorBackward(const FunctorCall& call) : call(call) {}

  std::string name() const override;
  void release_variables() override;
  variable_list apply(variable_list&& grads) override;
  void compiled_args(CompiledNodeArgs& arguments) const override;
  variable_list apply_with_saved(const variable_list& grads, SwapSavedVariables& saved) override;

  void save(const FunctorOperands& operands);

  // Computes the loss on the device, and with it the gradients that are wanted ahead.
  at::Tensor compute(const FunctorOperands& operands, const FunctorWanted& ahead);

  FunctorCall call;

 private:
  FunctorOperands unpack() const;
  FunctorWanted wanted();
  // Those that were written ahead, once; undefined where none were, or not for these operands, or
  // they cannot be checked here.
  FunctorGradients take_written(const at::Tensor& grad_output, const FunctorOperands& operands,
                                const FunctorWanted& wanted);
  variable_list as_list(const FunctorGradients& gradients) const;

  c10::SmallVector<SavedVariable, 5> saved_;
  c10::SmallVector<bool, 5> is_saved_;
  SeenOperands seen_;
  FunctorGradients gradients_;
  Turn turn_;
};

}  // namespace losscli
