// What autograd remembers of a call.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <string>

#include "torch/ahead.h"
#include "torch/compute.h"
#include "torch/stack.h"

namespace losscli {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

// A node whose gradients go on to those of these tensors.
template <typename Derived, typename Call>
auto make_node(const Call& call, at::ArrayRef<at::Tensor> inputs) {
  const auto node = [&] {
    // Nodes are counted by themselves in newer versions of PyTorch, from outside in older ones.
    if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
      return c10::make_intrusive<Derived>(call);
    } else {
      return std::make_shared<Derived>(call);
    }
  }();
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : inputs)
    edges.push_back(input.requires_grad() ? torch::autograd::impl::gradient_edge(input)
                                          : torch::autograd::Edge());
  node->set_next_edges(std::move(edges));
  return node;
}

using SavedOperands = c10::SmallVector<SavedVariable, kMostOperands>;

// Remembers a backward pass for the second derivatives.
struct GradientsBackward final : Node {
  explicit GradientsBackward(const LossCall& call) : call(call) {}

  std::string name() const override;
  void release_variables() override;
  variable_list apply(variable_list&& grads) override;
  void compiled_args(CompiledNodeArgs& arguments) const override;
  variable_list apply_with_saved(const variable_list& grads, SwapSavedVariables& saved) override;

  LossCall call;
  SavedVariable grad_output;
  SavedOperands operands;
  Wanted wanted{};

 private:
  variable_list apply_dispatched(const variable_list& grads) const;
};

// Remembers the product of second derivatives with vectors. It is linear in them and in
// grad_output, for which it has gradients; for the operands they would be third derivatives, and it
// throws.
struct SecondDerivativesBackward final : Node {
  explicit SecondDerivativesBackward(const LossCall& call) : call(call) {}

  std::string name() const override;
  void release_variables() override;
  variable_list apply(variable_list&& grads) override;
  void compiled_args(CompiledNodeArgs& arguments) const override;
  variable_list apply_with_saved(const variable_list& grads, SwapSavedVariables& saved) override;

  LossCall call;
  SavedOperands vectors;
  SavedVariable grad_output;
  SavedOperands operands;

 private:
  variable_list apply_dispatched(const variable_list& grads) const;
};

// Remembers a forward pass, and the gradients that it has written already: of a LossCall or a
// RowCall.
template <typename Call>
struct LossBackward final : Node {
  explicit LossBackward(const Call& call) : call(call) {}

  std::string name() const override;
  void release_variables() override;
  variable_list apply(variable_list&& grads) override;
  void compiled_args(CompiledNodeArgs& arguments) const override;
  variable_list apply_with_saved(const variable_list& grads, SwapSavedVariables& saved) override;

  void save(at::ArrayRef<at::Tensor> operands);

  // Computes the loss on the device, and with it the gradients that are wanted ahead.
  at::Tensor compute(at::ArrayRef<at::Tensor> operands, const Wanted& ahead);

  Call call;

 private:
  Wanted wanted();
  // The gradients for this incoming gradient, each once; undefined where none were written, or not
  // for these operands, or they cannot be checked here. Ends the lease.
  Tensors take_written(const at::Tensor& grad_output, at::ArrayRef<at::Tensor> operands,
                       const Wanted& wanted);
  // Through the operator, for whoever has to see it: a tracer, autograd itself, or forward mode.
  variable_list apply_dispatched(const at::Tensor& grad_output, at::ArrayRef<at::Tensor> operands,
                                 const Wanted& wanted) const;

  SavedOperands operands_;
  SeenOperands seen_;
  Tensors gradients_;
  Turn turn_;
};

}  // namespace losscli
