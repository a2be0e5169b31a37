// What the operators of all losses share: boxed kernels, which find their arguments on the stack,
// and their registration with the dispatcher.
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <deque>
#include <memory>

#include "torch/nodes.h"
#include "torch/tangents.h"

namespace losscli {

// A boxed kernel of one loss. Before its operands come, if it has `kVectors`, one for each of them,
// and `kBefore` other tensors; its parameters are followed by `kAfter` other arguments.
template <typename Loss, size_t kBefore, size_t kAfter, bool kVectors = false>
class CallKernel : public c10::OperatorKernel {
 public:
  explicit CallKernel(const Loss& loss) : loss_(loss) {}

 protected:
  size_t before() const { return kBefore + (kVectors ? loss_.operands() : 0); }
  size_t length() const { return before() + loss_.operands() + call_length(loss_) + kAfter; }
  const c10::IValue* arguments(const Stack& stack) const {
    return stack.data() + (stack.size() - length());
  }
  // All of them, the operands last.
  Tensors tensors(const Stack& stack) const {
    return take_tensors(arguments(stack), before() + loss_.operands());
  }
  Tensors operands(const Stack& stack) const {
    return take_tensors(arguments(stack) + before(), loss_.operands());
  }
  Call call(const Stack& stack) const {
    return take_call(loss_, arguments(stack) + before() + loss_.operands());
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

  const Loss& loss_;
};

inline bool wants_grad(TensorList tensors) {
  return torch::autograd::compute_requires_grad(tensors);
}

// Whether a transform of torch.func differentiates.
inline bool is_transformed(DispatchKeySet keys) {
  return keys.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

// Gives the loss of operands, which is on the stack unless it is `direct`, a node of its own.
inline void record(const Call& call, const Tensors& operands, bool direct, Stack& stack) {
  const size_t count = call.loss->gradients;
  const auto node = make_node<LossBackward>(call, operands, count);
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

// losscli::NAME and losscli_bench::NAME, which have a site or a strategy last.
class LossOperator : public CallKernel<Definition, 0, 1> {
 public:
  using CallKernel::CallKernel;

 protected:
  Call take(const Stack& stack) const {
    Call call = this->call(stack);
    if (last(stack).isInt())
      call.site = last(stack).toInt();
    else
      call.strategy = parse_strategy(last(stack).toStringView());
    return call;
  }
};

class LossCompute final : public LossOperator {
 public:
  using LossOperator::LossOperator;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    give_back(*stack, loss_.compute_loss(take(*stack), operands(*stack), {}, nullptr).loss);
  }
};

class LossAutograd final : public LossOperator {
 public:
  using LossOperator::LossOperator;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Tensors operands = this->operands(*stack);
    const bool recorded = wants_grad(operands), dual = have_tangents(operands);
    if (loss_.composes &&
        (dual || (recorded && (is_transformed(keys) || wants_composed(operands))))) {
      torch::jit::drop(*stack, 1);
      return call_operator(loss_, "_reference", *stack);
    }
    if (!recorded && !dual) return redispatch(op, keys, *stack);
    const Call call = take(*stack);
    // Without kernels the operator is called below autograd, where they are loaded.
    const bool direct =
        recorded && runs_directly(keys) && loss_.has_kernels(call, operands[0].device());
    if (direct)
      give_back(*stack);
    else
      redispatch(op, keys, *stack);
    if (recorded) record(call, operands, direct, *stack);
    if (dual) set_loss_tangent(call, operands, stack->back().toTensor());
  }

 private:
  bool wants_composed(const Tensors& operands) const {
    for (const size_t k : loss_.composed)
      if (wants_grad(operands[k])) return true;
    return false;
  }
};

// NAME_backward: an empty tensor for a gradient that is not wanted.
class BackwardCompute final : public CallKernel<Definition, 1, 1> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const Tensors operands = this->operands(*stack);
    const at::Tensor grad_output = arguments(*stack)[0].toTensor();
    Tensors gradients =
        loss_.compute_gradients(call(*stack), grad_output, operands, take_wanted(last(*stack)));
    give_back(*stack);
    for (size_t k = 0; k < gradients.size(); ++k)
      stack->emplace_back(gradients[k].defined() ? std::move(gradients[k])
                                                 : at::empty({0}, operands[k].options()));
  }
};

// As PyTorch does with its own losses: the operands are computed in float32 whatever autocast's
// dtype is.
template <c10::DeviceType device>
class Autocast final : public CallKernel<Definition, 0, 0> {
 public:
  using CallKernel<Definition, 0, 0>::CallKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard guard(
        at::autocast::get_autocast_dispatch_key_from_device_type(device));
    const auto first = stack->end() - op.schema().arguments().size();
    for (size_t k = 0; k < this->loss_.operands(); ++k)
      if (!first[k].isNone())
        first[k] = at::autocast::cached_cast(at::kFloat, first[k].toTensor(), device);
    op.callBoxed(*stack);
  }
};

// With the last for meta tensors within transforms.
constexpr c10::DispatchKey kAutogradKeys[] = {
    c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA, c10::DispatchKey::AutogradMeta,
    c10::DispatchKey::AutogradOther};

// What is registered stays so: libraries are never destroyed.
inline torch::Library& implementations(const char* space) {
  static auto& libraries = *new std::deque<torch::Library>;
  return libraries.emplace_back(torch::Library::IMPL, space, std::nullopt, __FILE__, __LINE__);
}

template <typename Kernel, typename Loss>
void implement(torch::Library& library, const std::string& name, c10::DispatchKey key,
               const Loss& loss) {
  library.impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(
                                                      std::make_unique<Kernel>(loss))));
}

// NAME and NAME_with_grad compute in float32 under autocast.
inline void implement_autocast(torch::Library& library, const Definition& loss) {
  for (const char* suffix : {"", "_with_grad"}) {
    using c10::DeviceType;
    const std::string name = loss.name + suffix;
    implement<Autocast<DeviceType::CPU>>(library, name, c10::DispatchKey::AutocastCPU, loss);
    implement<Autocast<DeviceType::CUDA>>(library, name, c10::DispatchKey::AutocastCUDA, loss);
  }
}

}  // namespace losscli
