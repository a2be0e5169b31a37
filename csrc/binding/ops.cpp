// The ops `losscli::NAME` and what belongs to them, registered for every loss of the list:
//
//   NAME(input, target, reduction, parameters..., strategy) -> loss
//   NAME_with_grad(input, target, reduction, parameters...) -> (loss, grad_input)
//   NAME_backward(grad_output, input, target, reduction, parameters..., grad_input, grad_target)
//     -> (grad_input, grad_target), an empty tensor for one that is not asked for
//   NAME_double_backward(grad_grad_input, grad_grad_target, grad_output, input, target, reduction,
//     parameters...) -> (grad_grad_output, grad_input, grad_target)
//
// All kernels are boxed: they take their arguments from the dispatcher's stack, so that one body
// serves losses with any number of parameters.
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include "nodes.h"

namespace losscli {
namespace {

void refuse_forward_mode(const LossCall& call, at::ArrayRef<Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    TORCH_CHECK_NOT_IMPLEMENTED(
        !tensor._fw_grad(0).defined(), call.name,
        ": forward-mode derivatives (jvp) are not supported; use reverse mode");
}

constexpr size_t loss_length(LossId id) { return 2 + call_length(id) + 1; }

LossCall take_loss_call(LossId id, const c10::IValue* arguments) {
  LossCall call = take_call(id, arguments + 2);
  call.strategy = parse_strategy(arguments[loss_length(id) - 1].toStringView());
  return call;
}

template <LossId id>
void loss_kernel(const OperatorHandle&, Stack* stack) {
  const auto arguments = stack->end() - loss_length(id);
  const LossCall call = take_loss_call(id, &arguments[0]);
  Tensor loss =
      compute_loss(call, arguments[0].toTensor(), arguments[1].toTensor(), false, false).loss;
  torch::jit::drop(*stack, loss_length(id));
  stack->emplace_back(std::move(loss));
}

template <LossId id>
void with_grad_kernel(const OperatorHandle&, Stack* stack) {
  const LossCall call = take_call(id, &stack->end()[-call_length(id)]);
  const auto arguments = stack->end() - (2 + call_length(id));
  const Tensor input = arguments[0].toTensor(), target = arguments[1].toTensor();
  auto [loss, gradient] = compute_loss_with_grad(call, input, target);
  torch::jit::drop(*stack, 2 + call_length(id));
  stack->emplace_back(std::move(loss));
  stack->emplace_back(std::move(gradient));
}

template <LossId id>
void backward_kernel(const OperatorHandle&, Stack* stack) {
  const size_t length = 3 + call_length(id) + 2;
  const auto arguments = stack->end() - length;
  const LossCall call = take_call(id, &arguments[3]);
  const Tensor input = arguments[1].toTensor(), target = arguments[2].toTensor();
  auto [grad_input, grad_target] =
      compute_gradients(call, arguments[0].toTensor(), input, target,
                        arguments[length - 2].toBool(), arguments[length - 1].toBool());
  torch::jit::drop(*stack, length);
  const auto none = [](const Tensor& like) { return at::empty({0}, like.options()); };
  stack->emplace_back(grad_input.defined() ? std::move(grad_input) : none(input));
  stack->emplace_back(grad_target.defined() ? std::move(grad_target) : none(target));
}

template <LossId id>
void double_backward_kernel(const OperatorHandle&, Stack* stack) {
  const size_t length = 5 + call_length(id);
  const auto arguments = stack->end() - length;
  const LossCall call = take_call(id, &arguments[5]);
  auto [grad_grad_output, grad_input, grad_target] = compute_double_backward(
      call, arguments[0].toTensor(), arguments[1].toTensor(), arguments[2].toTensor(),
      arguments[3].toTensor(), arguments[4].toTensor());
  torch::jit::drop(*stack, length);
  stack->emplace_back(std::move(grad_grad_output));
  stack->emplace_back(std::move(grad_input));
  stack->emplace_back(std::move(grad_target));
}

template <LossId id>
void loss_autograd(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const auto arguments = stack->end() - loss_length(id);
  const Tensor input = arguments[0].toTensor(), target = arguments[1].toTensor();
  const LossCall call = take_loss_call(id, &arguments[0]);
  refuse_forward_mode(call, {input, target});
  const bool recorded = torch::autograd::compute_requires_grad(input, target);

  if (!recorded || !runs_directly(keys)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  } else {
    torch::jit::drop(*stack, loss_length(id));
  }
  if (!recorded) return;

  const auto node = make_node<LossBackward>(call);
  node->set_next_edges(torch::autograd::collect_next_edges(input, target));
  node->input = SavedVariable(input, false);
  node->target = SavedVariable(target, false);
  Tensor loss;
  if (runs_directly(keys)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    // The incoming gradient of a single loss is most often 1; that of a tensor is anything. Hooks
    // on saved tensors mean to keep what backward needs elsewhere, or to compute it again: the
    // operands will do.
    const bool ahead = call.reduction != Reduction::none &&
                       at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
    node->written = compute_loss(call, input, target, ahead && input.requires_grad(),
                                 ahead && target.requires_grad());
    loss = std::exchange(node->written.loss, Tensor());
  } else {
    loss = torch::jit::pop(*stack).toTensor();
  }
  torch::autograd::set_history(loss, node);
  stack->emplace_back(std::move(loss));
}

template <LossId id>
void backward_autograd(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  const size_t length = 3 + call_length(id) + 2;
  const auto arguments = stack->end() - length;
  const Tensor grad_output = arguments[0].toTensor(), input = arguments[1].toTensor(),
               target = arguments[2].toTensor();
  const LossCall call = take_call(id, &arguments[3]);
  const bool wants[] = {arguments[length - 2].toBool(), arguments[length - 1].toBool()};
  refuse_forward_mode(call, {grad_output, input, target});
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  if (!torch::autograd::compute_requires_grad(grad_output, input, target)) return;

  const auto node = make_node<GradientsBackward>(call);
  node->set_next_edges(torch::autograd::collect_next_edges(grad_output, input, target));
  node->grad_output = SavedVariable(grad_output, false);
  node->input = SavedVariable(input, false);
  node->target = SavedVariable(target, false);
  node->wants_input = wants[0];
  node->wants_target = wants[1];
  for (size_t i = 0; i < 2; ++i) {
    // One that was not asked for has its number in the node, but no history.
    const Tensor gradient = wants[i] ? (stack->end() - 2)[i].toTensor() : Tensor();
    torch::autograd::set_history(gradient, node);
  }
}

// As PyTorch does with its own losses: computed in float32 whatever autocast's dtype is.
template <c10::DeviceType device>
void loss_autocast(const OperatorHandle& op, Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto arguments = stack->end() - op.schema().arguments().size();
  for (size_t i = 0; i < 2; ++i)
    arguments[i] = at::autocast::cached_cast(at::kFloat, arguments[i].toTensor(), device);
  op.callBoxed(stack);
}

using torch::CppFunction;

template <LossId id>
void define_loss(torch::Library& library) {
  const LossEntry& entry = kLosses[static_cast<int>(id)];
  std::string settings = "str reduction";
  for (size_t p = 0; p < entry.count; ++p)
    settings += std::string(", float ") + entry.parameters[p].name;
  const std::string name = entry.name;
  const auto define = [&](const std::string& schema) {
    library.def(schema.c_str(), {at::Tag::pt2_compliant_tag});
  };
  define(name + "(Tensor input, Tensor target, " + settings +
         ", str strategy=\"single_pass\") -> Tensor");
  define(name + "_with_grad(Tensor input, Tensor target, " + settings + ") -> (Tensor, Tensor)");
  define(name + "_backward(Tensor grad_output, Tensor input, Tensor target, " + settings +
         ", bool grad_input, bool grad_target) -> (Tensor, Tensor)");
  define(name +
         "_double_backward(Tensor grad_grad_input, Tensor grad_grad_target, Tensor grad_output, "
         "Tensor input, Tensor target, " +
         settings + ") -> (Tensor, Tensor, Tensor)");

  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA}) {
    const auto on = [&](CppFunction function) { return torch::dispatch(key, std::move(function)); };
    library.impl(name.c_str(), on(CppFunction::makeFromBoxedFunction<&loss_kernel<id>>()));
    library.impl((name + "_with_grad").c_str(),
                 on(CppFunction::makeFromBoxedFunction<&with_grad_kernel<id>>()));
    library.impl((name + "_backward").c_str(),
                 on(CppFunction::makeFromBoxedFunction<&backward_kernel<id>>()));
    library.impl((name + "_double_backward").c_str(),
                 on(CppFunction::makeFromBoxedFunction<&double_backward_kernel<id>>()));
  }

  const auto autograd = [](CppFunction function) {
    return torch::dispatch(c10::DispatchKey::Autograd, std::move(function));
  };
  library.impl(name.c_str(), autograd(CppFunction::makeFromBoxedFunction<&loss_autograd<id>>()));
  library.impl((name + "_backward").c_str(),
               autograd(CppFunction::makeFromBoxedFunction<&backward_autograd<id>>()));
  library.impl((name + "_with_grad").c_str(), autograd(CppFunction::makeFallthrough()));
  library.impl((name + "_double_backward").c_str(),
               autograd(torch::autograd::autogradNotImplementedFallback()));

  for (const char* suffix : {"", "_with_grad"}) {
    library.impl((name + suffix).c_str(),
                 torch::dispatch(
                     c10::DispatchKey::AutocastCPU,
                     CppFunction::makeFromBoxedFunction<&loss_autocast<c10::DeviceType::CPU>>()));
    library.impl((name + suffix).c_str(),
                 torch::dispatch(
                     c10::DispatchKey::AutocastCUDA,
                     CppFunction::makeFromBoxedFunction<&loss_autocast<c10::DeviceType::CUDA>>()));
  }
}

}  // namespace
}  // namespace losscli

TORCH_LIBRARY(losscli, library) {
#define LOSSCLI_DEFINE(loss) losscli::define_loss<losscli::LossId::loss>(library);
  LOSSCLI_FOR_EACH_LOSS(LOSSCLI_DEFINE)
#undef LOSSCLI_DEFINE
}
