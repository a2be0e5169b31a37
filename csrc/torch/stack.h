// Arguments and results on the dispatcher's stack. All kernels are boxed, so that one body serves
// losses with any number of operands and parameters.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>
#include <utility>

#include "torch/call.h"

namespace losscli {

using c10::DispatchKeySet;
using c10::OperatorHandle;
using torch::jit::Stack;

// The operands that begin at `first`.
inline Tensors take_tensors(const c10::IValue* first, size_t count) {
  Tensors tensors;
  for (size_t k = 0; k < count; ++k)
    tensors.push_back(first[k].isNone() ? at::Tensor() : first[k].toTensor());
  return tensors;
}

// The reduction and the parameters, which begin at `first`; checked below the dispatcher.
inline Call take_call(const Definition& loss, const c10::IValue* first) {
  Call call;
  call.loss = &loss;
  call.reduction = parse_reduction(first->toStringView());
  for (size_t p = 0; p < loss.parameters(); ++p) call.parameters[p] = first[1 + p].toDouble();
  return call;
}

// The operands, the reduction and the parameters.
inline void put_call(const Call& call, TensorList operands, Stack& stack) {
  for (const at::Tensor& operand : operands)
    stack.emplace_back(operand.defined() ? c10::IValue(operand) : c10::IValue());
  stack.emplace_back(std::string(kReductions[static_cast<int>(call.reduction)]));
  for (size_t p = 0; p < call.loss->parameters(); ++p) stack.emplace_back(call.parameters[p]);
}

inline Wanted take_wanted(const c10::IValue& value) {
  Wanted wanted{};
  const auto list = value.toBoolList();
  for (size_t k = 0; k < list.size(); ++k) wanted[k] = list[k];
  return wanted;
}

// Calls losscli::NAME plus a suffix.
inline void call_operator(const Definition& loss, const char* suffix, Stack& stack) {
  const std::string name = "losscli::" + loss.name + suffix;
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").callBoxed(stack);
}

// Whether there is an operator losscli::NAME plus a suffix.
inline bool has_operator(const Definition& loss, const char* suffix) {
  const std::string name = "losscli::" + loss.name + suffix;
  return c10::Dispatcher::singleton().findSchema({name, ""}).has_value();
}

// The gradients of NAME_backward, by calling it.
inline Tensors call_backward(const Call& call, const at::Tensor& grad_output, TensorList operands,
                             const Wanted& wanted) {
  Stack stack;
  stack.emplace_back(grad_output);
  put_call(call, operands, stack);
  c10::List<bool> flags;
  for (size_t k = 0; k < call.loss->gradients; ++k) flags.push_back(wanted[k]);
  stack.emplace_back(std::move(flags));
  call_operator(*call.loss, "_backward", stack);
  return take_tensors(stack.data(), call.loss->gradients);
}

// What NAME_double_backward returns, for grad_output and for the operands, by calling it.
inline Tensors call_double_backward(const Call& call, TensorList vectors,
                                    const at::Tensor& grad_output, TensorList operands) {
  Stack stack;
  for (const at::Tensor& vector : vectors) stack.emplace_back(vector);
  stack.emplace_back(grad_output);
  put_call(call, operands, stack);
  call_operator(*call.loss, "_double_backward", stack);
  return take_tensors(stack.data(), stack.size());
}

// Whether nothing but a real device lies below autograd: no tracer, mode, subclass or transform
// that has to see each operator.
inline bool runs_directly(DispatchKeySet keys) {
  // Above autograd, where the mask below does not look: batches of upstream gradients.
  if (keys.has(c10::DispatchKey::Batched) || keys.has(c10::DispatchKey::FuncTorchBatched))
    return false;
  const auto key = (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId();
  return key == c10::DispatchKey::CPU || key == c10::DispatchKey::CUDA;
}

inline DispatchKeySet dispatch_keys(TensorList tensors) {
  // BackendSelect is always included, and chooses backends for calls without tensors only.
  DispatchKeySet keys =
      c10::impl::tls_local_dispatch_key_set().included_.remove(c10::DispatchKey::BackendSelect);
  for (const at::Tensor& tensor : tensors) keys = keys | tensor.key_set();
  return keys;
}

}  // namespace losscli
