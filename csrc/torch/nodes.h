// What autograd remembers of a call.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <string>

#include "torch/ahead.h"
#include "torch/stack.h"

namespace losscli {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

// Remembers a call and tensors of it.
class CallNode : public Node {
 public:
  CallNode(const Call& call, const char* what) : call(call), what_(what) {}

  std::string name() const override { return "losscli_" + call.loss->name + what_; }
  void release_variables() override;
  variable_list apply(variable_list&& grads) override;
  void compiled_args(CompiledNodeArgs& arguments) const override;
  variable_list apply_with_saved(const variable_list& grads, SwapSavedVariables& swap) override;

  void save(TensorList tensors);

  const Call call;

 protected:
  // Throws (RuntimeError) where a tensor has been changed in place: whether backward needs it is
  // known on the device alone.
  Tensors unpack() const;
  // Through the operators, for whoever has to see them: a tracer, autograd itself, or forward mode.
  virtual variable_list apply_dispatched(const variable_list& grads, TensorList saved) = 0;
  // Gives up what else is remembered.
  virtual void forget() {}

 private:
  at::Tensor unpack(size_t place) const;

  const char* what_;
  c10::SmallVector<SavedVariable, kMostOperands> saved_;
  c10::SmallVector<uint32_t, kMostOperands> versions_;
};

// Remembers a backward pass for the second derivatives: grad_output and the operands.
struct GradientsBackward final : CallNode {
  explicit GradientsBackward(const Call& call) : CallNode(call, "_double_backward") {}

  void compiled_args(CompiledNodeArgs& arguments) const override;
  variable_list apply_dispatched(const variable_list& grads, TensorList saved) override;

  Wanted wanted{};
};

// Remembers the product of second derivatives with vectors: these, grad_output and the operands. It
// is linear in them and in grad_output, for which it has gradients; for the operands they would be
// third derivatives, and it throws.
struct SecondDerivativesBackward final : CallNode {
  explicit SecondDerivativesBackward(const Call& call) : CallNode(call, "_third_derivatives") {}

  variable_list apply_dispatched(const variable_list& grads, TensorList saved) override;
};

// Remembers a forward pass, and the gradients that it has written already.
class LossBackward final : public CallNode {
 public:
  explicit LossBackward(const Call& call) : CallNode(call, "_backward") {}

  variable_list apply(variable_list&& grads) override;

  void save(TensorList operands);

  // Computes the loss on the device, and with it the gradients that are wanted ahead.
  at::Tensor compute(TensorList operands, const Wanted& ahead);

 private:
  Wanted wanted();
  // The gradients for this upstream gradient, each once; undefined where none were written, or not
  // for these operands, or they cannot be checked here. Ends the lease.
  Tensors take_written(const at::Tensor& grad_output, TensorList operands, const Wanted& wanted);
  variable_list apply_dispatched(const variable_list& grads, TensorList operands) override;
  void forget() override;

  SeenOperands seen_;
  Tensors gradients_;
  Turn turn_;
};

// A node that saves tensors, and whose gradients go on to those of the first `count` of them.
template <typename Derived>
auto make_node(const Call& call, TensorList saved, size_t count) {
  const auto node = [&] {
    // Nodes are counted by themselves in newer versions of PyTorch, from outside in older ones.
    if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
      return c10::make_intrusive<Derived>(call);
    } else {
      return std::make_shared<Derived>(call);
    }
  }();
  torch::autograd::edge_list edges;
  for (const at::Tensor& input : saved.slice(0, count))
    edges.push_back(input.requires_grad() ? torch::autograd::impl::gradient_edge(input)
                                          : torch::autograd::Edge());
  node->set_next_edges(std::move(edges));
  node->save(saved);
  return node;
}

}  // namespace losscli
