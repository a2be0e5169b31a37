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

// A call of an operator of one loss, on the stack. Before its operands come, if it has `kVectors`,
// one for each of them, and `kBefore` other tensors; its parameters are followed by `kAfter` other
// arguments.
template <typename LossType, size_t kBefore, size_t kAfter, bool kVectors = false>
struct BoxedCall {
  using Loss = LossType;

  const Loss& loss;
  const OperatorHandle& op;
  DispatchKeySet keys;
  Stack& stack;

  size_t before() const { return kBefore + (kVectors ? loss.operands() : 0); }
  size_t length() const { return before() + loss.operands() + 1 + loss.parameters() + kAfter; }
  const c10::IValue* arguments() const { return stack.data() + (stack.size() - length()); }
  // All of them, the operands last.
  Tensors tensors() const { return take_tensors(arguments(), before() + loss.operands()); }
  Tensors operands() const { return take_tensors(arguments() + before(), loss.operands()); }
  Call call() const { return take_call(loss, arguments() + before() + loss.operands()); }
  const c10::IValue& last() const { return stack.back(); }

  // Replaces the call on the stack by its results.
  template <typename... Results>
  void give_back(Results&&... results) const {
    torch::jit::drop(stack, length());
    (stack.emplace_back(std::forward<Results>(results)), ...);
  }

  void redispatch() const {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, &stack);
  }
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
    // The upstream gradient of a single loss is most often what it was in the last step; that of a
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
using BoxedLoss = BoxedCall<Definition, 0, 1>;

inline Call take_call(const BoxedLoss& boxed) {
  Call call = boxed.call();
  if (boxed.last().isInt())
    call.site = boxed.last().toInt();
  else
    call.strategy = parse_strategy(boxed.last().toStringView());
  return call;
}

inline void loss_compute(const BoxedLoss& boxed) {
  boxed.give_back(boxed.loss.compute_loss(take_call(boxed), boxed.operands(), {}, nullptr).loss);
}

inline void loss_autograd(const BoxedLoss& boxed) {
  const Tensors operands = boxed.operands();
  const auto wants_composed = [&] {
    const auto& composed = boxed.loss.composed;
    return std::any_of(composed.begin(), composed.end(),
                       [&](size_t k) { return wants_grad(operands[k]); });
  };
  const bool recorded = wants_grad(operands), dual = have_tangents(operands);
  if (boxed.loss.composes &&
      (dual || (recorded && (is_transformed(boxed.keys) || wants_composed())))) {
    torch::jit::drop(boxed.stack, 1);
    return call_operator(boxed.loss, "_reference", boxed.stack);
  }
  if (!recorded && !dual) return boxed.redispatch();
  const Call call = take_call(boxed);
  // Without kernels the operator is called below autograd, where they are loaded.
  const bool direct =
      recorded && runs_directly(boxed.keys) && boxed.loss.has_kernels(call, operands[0].device());
  if (direct)
    boxed.give_back();
  else
    boxed.redispatch();
  if (recorded) record(call, operands, direct, boxed.stack);
  if (dual) set_loss_tangent(call, operands, boxed.last().toTensor());
}

// NAME_backward: an empty tensor for a gradient that is not wanted.
inline void backward_compute(const BoxedCall<Definition, 1, 1>& boxed) {
  const Tensors operands = boxed.operands();
  const at::Tensor grad_output = boxed.arguments()[0].toTensor();
  Tensors gradients =
      boxed.loss.compute_gradients(boxed.call(), grad_output, operands, take_wanted(boxed.last()));
  boxed.give_back();
  for (size_t k = 0; k < gradients.size(); ++k)
    boxed.stack.emplace_back(gradients[k].defined() ? std::move(gradients[k])
                                                    : at::empty({0}, operands[k].options()));
}

// As PyTorch does with its own losses: the operands are computed in float32 whatever autocast's
// dtype is.
template <c10::DeviceType device>
void autocast(const BoxedCall<Definition, 0, 0>& boxed) {
  const c10::impl::ExcludeDispatchKeyGuard guard(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto first = boxed.stack.end() - boxed.op.schema().arguments().size();
  for (size_t k = 0; k < boxed.loss.operands(); ++k)
    if (!first[k].isNone())
      first[k] = at::autocast::cached_cast(at::kFloat, first[k].toTensor(), device);
  boxed.op.callBoxed(boxed.stack);
}

// With the last for meta tensors within transforms.
constexpr c10::DispatchKey kAutogradKeys[] = {
    c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA, c10::DispatchKey::AutogradMeta,
    c10::DispatchKey::AutogradOther};

// What is registered stays so: libraries are never destroyed.
inline torch::Library& implementations(const char* space) {
  static auto& libraries = *new std::deque<torch::Library>;
  return libraries.emplace_back(torch::Library::IMPL, space, std::nullopt, __FILE__, __LINE__);
}

// What the dispatcher calls.
template <typename Boxed>
class Kernel final : public c10::OperatorKernel {
 public:
  Kernel(const typename Boxed::Loss& loss, void (*run)(const Boxed&)) : loss_(loss), run_(run) {}

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    run_({loss_, op, keys, *stack});
  }

 private:
  const typename Boxed::Loss& loss_;
  void (*const run_)(const Boxed&);
};

template <typename Boxed>
void implement(torch::Library& library, const std::string& name, c10::DispatchKey key,
               const typename Boxed::Loss& loss, void (*run)(const Boxed&)) {
  library.impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(
                                                      std::make_unique<Kernel<Boxed>>(loss, run))));
}

// NAME and NAME_with_grad compute in float32 under autocast.
inline void implement_autocast(torch::Library& library, const Definition& loss) {
  for (const char* suffix : {"", "_with_grad"}) {
    using c10::DeviceType;
    const std::string name = loss.name + suffix;
    implement(library, name, c10::DispatchKey::AutocastCPU, loss, autocast<DeviceType::CPU>);
    implement(library, name, c10::DispatchKey::AutocastCUDA, loss, autocast<DeviceType::CUDA>);
  }
}

}  // namespace losscli
