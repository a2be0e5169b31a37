// What autograd remembers of a call, and how a call is read from the dispatcher's stack.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <mutex>
#include <string>
#include <utility>

#include "kernels.h"

namespace losscli {

using at::Tensor;
using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::jit::Stack;

// What the functor's header says of a loss, by its place in the list.
struct LossEntry {
  const char* name;
  const Parameter* parameters;
  size_t count;
};

#define LOSSCLI_ENTRY(loss) \
  {#loss, loss<double>::parameters.data(), loss<double>::parameters.size()},
inline constexpr LossEntry kLosses[] = {LOSSCLI_FOR_EACH_LOSS(LOSSCLI_ENTRY)};
#undef LOSSCLI_ENTRY

#define LOSSCLI_CHECK_COUNT(loss) \
  static_assert(loss<double>::parameters.size() <= kMaxParameters, "raise kMaxParameters");
LOSSCLI_FOR_EACH_LOSS(LOSSCLI_CHECK_COUNT)
#undef LOSSCLI_CHECK_COUNT

// Takes the reduction and the parameters, which begin at `first`, from the arguments on the stack.
inline LossCall take_call(LossId id, const c10::IValue* first) {
  const LossEntry& entry = kLosses[static_cast<int>(id)];
  LossCall call{id, entry.name, {}, parse_reduction(first->toStringView())};
  for (size_t p = 0; p < entry.count; ++p) {
    const Parameter& parameter = entry.parameters[p];
    const double value = first[1 + p].toDouble();
    TORCH_CHECK_VALUE(std::isfinite(value) && value >= parameter.minimum, entry.name, ": ",
                      parameter.name, " must be ",
                      std::isfinite(parameter.minimum)
                          ? c10::str("a finite number of at least ", parameter.minimum)
                          : "a finite number",
                      ", but is ", value);
    call.parameters[p] = value;
  }
  return call;
}

inline void put_call(const LossCall& call, Stack& stack) {
  constexpr const char* kReductions[] = {"none", "mean", "sum"};
  stack.emplace_back(std::string(kReductions[static_cast<int>(call.reduction)]));
  for (size_t p = 0; p < kLosses[static_cast<int>(call.id)].count; ++p)
    stack.emplace_back(call.parameters[p]);
}

constexpr size_t call_length(LossId id) { return 1 + kLosses[static_cast<int>(id)].count; }

inline OperatorHandle find_op(const LossCall& call, const char* suffix) {
  const std::string name = std::string("losscli::") + call.name + suffix;
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
}

// Whether nothing but a real device lies below autograd: no tracer, mode, subclass or transform
// that has to see each op.
inline bool runs_directly(DispatchKeySet keys) {
  // Above autograd, where the mask below does not look: batches of incoming gradients.
  if (keys.has(c10::DispatchKey::Batched) || keys.has(c10::DispatchKey::FuncTorchBatched))
    return false;
  const auto key = (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId();
  return key == c10::DispatchKey::CPU || key == c10::DispatchKey::CUDA;
}

inline DispatchKeySet dispatch_keys(at::ArrayRef<Tensor> tensors) {
  // BackendSelect is always included, and chooses backends for calls without tensors only.
  DispatchKeySet keys =
      c10::impl::tls_local_dispatch_key_set().included_.remove(c10::DispatchKey::BackendSelect);
  for (const Tensor& tensor : tensors) keys = keys | tensor.key_set();
  return keys;
}

// Nodes are counted by themselves in newer versions of PyTorch, from outside in older ones.
template <typename Derived>
auto make_node(const LossCall& call) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
    return c10::make_intrusive<Derived>(call);
  } else {
    return std::make_shared<Derived>(call);
  }
}

// Remembers a forward pass for its second derivatives.
struct GradientsBackward final : Node {
  explicit GradientsBackward(const LossCall& call) : call(call) {}

  std::string name() const override {
    return std::string("losscli_") + call.name + "_double_backward";
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    grad_output.reset_data();
    input.reset_data();
    target.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Tensor x = input.unpack(), y = target.unpack(), g = grad_output.unpack();
    const auto toward = [](const Tensor& grad, const Tensor& operand) {
      return grad.defined() ? grad : at::zeros_like(operand);
    };
    // A gradient that was not asked for came out as an empty tensor.
    Stack stack;
    stack.emplace_back(toward(wants_input ? grads[0] : Tensor(), x));
    stack.emplace_back(toward(wants_target ? grads[1] : Tensor(), y));
    stack.emplace_back(g);
    stack.emplace_back(x);
    stack.emplace_back(y);
    put_call(call, stack);
    find_op(call, "_double_backward").callBoxed(stack);
    variable_list result(3);
    for (size_t i = 0; i < 3; ++i)
      if (task_should_compute_output(i)) result[i] = stack[i].toTensor();
    return result;
  }

  LossCall call;
  SavedVariable grad_output, input, target;
  bool wants_input = false, wants_target = false;
};

// Remembers a forward pass, and the gradients that it has written already.
struct LossBackward final : Node {
  explicit LossBackward(const LossCall& call) : call(call) {}

  std::string name() const override { return std::string("losscli_") + call.name + "_backward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    input.reset_data();
    target.reset_data();
    written = {};
  }

  variable_list apply(variable_list&& grads) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Tensor x = input.unpack(), y = target.unpack();
    variable_list result(2);
    if (!grads[0].defined()) return result;
    bool wants[] = {task_should_compute_output(0), task_should_compute_output(1)};

    if (at::GradMode::is_enabled() || !runs_directly(dispatch_keys({grads[0], x, y})))
      return apply_dispatched(grads[0], x, y, wants);

    // The written gradients may leave only once: with a retained graph they would have to be right
    // again for the next incoming gradient, while the last one's owner still holds them.
    if (!torch::autograd::get_current_graph_task_keep_graph()) {
      const LossAndGradients ready = std::exchange(written, {});
      const Tensor grad_input = wants[0] ? ready.grad_input : Tensor();
      const Tensor grad_target = wants[1] ? ready.grad_target : Tensor();
      if (grad_input.defined() || grad_target.defined())
        rescale_gradients(call, grads[0], x, y, grad_input, grad_target);
      result[0] = as_operand(grad_input, x);
      result[1] = as_operand(grad_target, y);
    }
    wants[0] = wants[0] && !result[0].defined();
    wants[1] = wants[1] && !result[1].defined();
    if (wants[0] || wants[1]) {
      auto [grad_input, grad_target] = compute_gradients(call, grads[0], x, y, wants[0], wants[1]);
      if (wants[0]) result[0] = std::move(grad_input);
      if (wants[1]) result[1] = std::move(grad_target);
    }
    return result;
  }

  // Through the op, for whoever has to see it: a tracer, or autograd itself.
  variable_list apply_dispatched(const Tensor& grad_output, const Tensor& x, const Tensor& y,
                                 const bool (&wants)[2]) const {
    Stack stack;
    stack.emplace_back(grad_output);
    stack.emplace_back(x);
    stack.emplace_back(y);
    put_call(call, stack);
    stack.emplace_back(wants[0]);
    stack.emplace_back(wants[1]);
    find_op(call, "_backward").callBoxed(stack);
    variable_list result(2);
    for (size_t i = 0; i < 2; ++i)
      if (wants[i]) result[i] = stack[i].toTensor();
    return result;
  }

  LossCall call;
  SavedVariable input, target;
  LossAndGradients written;
};

}  // namespace losscli
