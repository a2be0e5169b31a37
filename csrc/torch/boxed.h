// What the operators of all losses share: boxed kernels, which find their arguments on the stack.
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "torch/implement.h"
#include "torch/nodes.h"

namespace losscli {

// A boxed kernel of one loss, whose operands come after `kBefore` other arguments and whose
// parameters are followed by `kAfter` others.
template <typename Call, size_t kBefore, size_t kAfter>
class CallKernel : public c10::OperatorKernel {
 public:
  using Definition = typename Call::Definition;

  explicit CallKernel(Definition& loss) : loss_(loss) {}

 protected:
  size_t length() const { return kBefore + loss_.operands() + call_length(loss_) + kAfter; }
  const c10::IValue* arguments(const Stack& stack) const {
    return stack.data() + (stack.size() - length());
  }
  Tensors operands(const Stack& stack) const {
    return take_tensors(arguments(stack) + kBefore, loss_.operands());
  }
  Call call(const Stack& stack) const {
    return take_call<Call>(loss_, arguments(stack) + kBefore + loss_.operands());
  }
  const c10::IValue& last(const Stack& stack) const { return stack.back(); }

  // Replaces the call on the stack by its results.
  template <typename... Results>
  void give_back(Stack& stack, Results&&... results) const {
    torch::jit::drop(stack, length());
    (stack.emplace_back(std::forward<Results>(results)), ...);
  }

  static void redispatch(const OperatorHandle& op, DispatchKeySet keys, Stack& stack) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, &stack);
  }

  Definition& loss_;
};

inline bool wants_grad(at::ArrayRef<at::Tensor> tensors) {
  return torch::autograd::compute_requires_grad(tensors);
}

// Whether a transform of torch.func differentiates.
inline bool is_transformed(DispatchKeySet keys) {
  return keys.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

// Whether the kernels compute a call right below autograd. Without kernels the operator is called
// below, where they are loaded.
template <typename Call>
bool is_direct(const Call& call, DispatchKeySet keys, const Tensors& operands) {
  return runs_directly(keys) && has_kernels(call, operands[0].device());
}

// Gives the loss of operands, which is on the stack unless it is `direct`, a node of its own.
template <typename Call>
void record(const Call& call, const Tensors& operands, bool direct, Stack& stack) {
  const size_t count = call.loss->gradients();
  const auto node =
      make_node<LossBackward<Call>>(call, at::ArrayRef<at::Tensor>(operands).slice(0, count));
  node->save(operands);
  at::Tensor loss;
  if (direct) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    // The incoming gradient of a single loss is most often what it was in the last step; that of a
    // tensor is anything. Hooks on saved tensors mean to keep what backward needs elsewhere, or to
    // compute it again: the operands will do.
    const bool ahead = call.reduction != Reduction::none &&
                       at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
    Wanted wanted{};
    for (size_t k = 0; k < count; ++k) wanted[k] = ahead && operands[k].requires_grad();
    loss = node->compute(operands, wanted);
  } else {
    loss = torch::jit::pop(stack).toTensor();
  }
  torch::autograd::set_history(loss, node);
  stack.emplace_back(std::move(loss));
}

// NAME_backward: an empty tensor for a gradient that is not wanted.
template <typename Call>
class BackwardCompute final : public CallKernel<Call, 1, 1> {
 public:
  using CallKernel<Call, 1, 1>::CallKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const Tensors operands = this->operands(*stack);
    const at::Tensor grad_output = this->arguments(*stack)[0].toTensor();
    Tensors gradients = compute_gradients(this->call(*stack), grad_output, operands,
                                          take_wanted(this->last(*stack)));
    this->give_back(*stack);
    for (size_t k = 0; k < this->loss_.gradients(); ++k)
      stack->emplace_back(gradients[k].defined() ? std::move(gradients[k])
                                                 : at::empty({0}, operands[k].options()));
  }
};

template <typename Loss, c10::DeviceType device>
class Autocast final : public c10::OperatorKernel {
 public:
  explicit Autocast(Loss& loss) : loss_(loss) {}

  void operator()(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
    call_in_float32(op, loss_.operands(), device, *stack);
  }

 private:
  Loss& loss_;
};

// NAME and NAME_with_grad compute in float32 under autocast.
template <typename Loss>
void implement_autocast(torch::Library& library, Loss& loss) {
  for (const char* suffix : {"", "_with_grad"}) {
    using c10::DeviceType;
    const std::string name = loss.name + suffix;
    implement<Autocast<Loss, DeviceType::CPU>>(library, name, c10::DispatchKey::AutocastCPU, loss);
    implement<Autocast<Loss, DeviceType::CUDA>>(library, name, c10::DispatchKey::AutocastCUDA,
                                                loss);
  }
}

}  // namespace losscli
