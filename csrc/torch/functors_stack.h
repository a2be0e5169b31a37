// Arguments of the operators of a functor over rows on the dispatcher's stack: the operands, the
// reduction, the parameters, in the order of losscli/extension/functor_operators.py.
#pragma once

#include "torch/functors.h"
#include "torch/stack.h"

namespace losscli {

inline size_t functor_length(const FunctorLoss& loss) {
  return loss.operands() + 1 + loss.parameters();
}

inline FunctorOperands take_functor_operands(const FunctorLoss& loss, const c10::IValue* first) {
  FunctorOperands operands;
  for (size_t k = 0; k < loss.operands(); ++k)
    operands.push_back(first[k].isNone() ? at::Tensor() : first[k].toTensor());
  return operands;
}

// The reduction and the parameters, which begin at `first`.
inline FunctorCall take_functor_call(FunctorLoss& loss, const c10::IValue* first) {
  FunctorCall call;
  call.loss = &loss;
  call.reduction = parse_reduction(first->toStringView());
  for (size_t p = 0; p < loss.parameters(); ++p) call.parameters[p] = first[1 + p].toDouble();
  return call;
}

inline void put_functor(const FunctorCall& call, const FunctorOperands& operands, Stack& stack) {
  constexpr const char* kReductions[] = {"none", "mean", "sum"};
  for (const at::Tensor& operand : operands)
    stack.emplace_back(operand.defined() ? c10::IValue(operand) : c10::IValue());
  stack.emplace_back(std::string(kReductions[static_cast<int>(call.reduction)]));
  for (size_t p = 0; p < call.loss->parameters(); ++p) stack.emplace_back(call.parameters[p]);
}

// Calls losscli::NAME plus a suffix.
inline void call_functor_operator(const FunctorLoss& loss, const char* suffix, Stack& stack) {
  const std::string name = "losscli::" + loss.name + suffix;
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").callBoxed(stack);
}

inline at::Tensor call_functor_reference(const FunctorCall& call, const FunctorOperands& operands) {
  Stack stack;
  put_functor(call, operands, stack);
  call_functor_operator(*call.loss, "_reference", stack);
  return stack[0].toTensor();
}

inline FunctorWanted take_functor_wanted(const c10::IValue& value) {
  FunctorWanted wanted{};
  const auto list = value.toBoolList();
  for (size_t k = 0; k < list.size(); ++k) wanted[k] = list[k];
  return wanted;
}

// The gradients that are wanted, by calling NAME_backward.
inline FunctorGradients call_functor_backward(const FunctorCall& call,
                                              const at::Tensor& grad_output,
                                              const FunctorOperands& operands,
                                              const FunctorWanted& wanted) {
  Stack stack;
  stack.emplace_back(grad_output);
  put_functor(call, operands, stack);
  c10::List<bool> flags;
  for (size_t k = 0; k < call.loss->rows(); ++k) flags.push_back(wanted[k]);
  stack.emplace_back(std::move(flags));
  call_functor_operator(*call.loss, "_backward", stack);
  FunctorGradients gradients;
  for (size_t k = 0; k < call.loss->rows(); ++k)
    if (wanted[k]) gradients[k] = stack[k].toTensor();
  return gradients;
}

}  // namespace losscli
