// Arguments of the operators of a loss over rows on the dispatcher's stack: the operands, then the
// settings, in the order of losscli/extension/row_operators.py.
#pragma once

#include "torch/rows.h"
#include "torch/stack.h"

namespace losscli {

constexpr size_t kRowOperands = 3;
constexpr size_t kRowSettings = 6;
constexpr size_t kRowLength = kRowOperands + kRowSettings;

inline RowOperands take_row_operands(const c10::IValue* first) {
  RowOperands operands{first[0].toTensor(), first[1].toTensor(), {}};
  if (!first[2].isNone()) operands.weight = first[2].toTensor();
  return operands;
}

// Checked below the dispatcher, but for the reduction.
inline RowCall take_row_call(RowLossDefinition& loss, const c10::IValue* first) {
  RowCall call;
  call.loss = &loss;
  call.reduction = parse_reduction(first[0].toStringView());
  call.ignore_index = first[1].toInt();
  call.label_smoothing = first[2].toDouble();
  call.temperature = first[3].toDouble();
  call.softcap = first[4].toDouble();
  call.z_loss = first[5].toDouble();
  return call;
}

inline void put_row_operands(const RowOperands& operands, Stack& stack) {
  stack.emplace_back(operands.input);
  stack.emplace_back(operands.target);
  stack.emplace_back(operands.weight.defined() ? c10::IValue(operands.weight) : c10::IValue());
}

inline void put_row_call(const RowCall& call, Stack& stack) {
  constexpr const char* kReductions[] = {"none", "mean", "sum"};
  stack.emplace_back(std::string(kReductions[static_cast<int>(call.reduction)]));
  stack.emplace_back(call.ignore_index);
  for (const double setting : {call.label_smoothing, call.temperature, call.softcap, call.z_loss})
    stack.emplace_back(setting);
}

// Calls losscli::NAME plus a suffix.
inline void call_row_operator(const RowLossDefinition& loss, const char* suffix, Stack& stack) {
  const std::string name = "losscli::" + loss.name + suffix;
  c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").callBoxed(stack);
}

// The gradient of the input, by calling NAME_backward.
inline at::Tensor call_row_backward(const RowCall& call, const at::Tensor& grad_output,
                                    const RowOperands& operands) {
  Stack stack;
  stack.emplace_back(grad_output);
  put_row_operands(operands, stack);
  put_row_call(call, stack);
  call_row_operator(*call.loss, "_backward", stack);
  return stack[0].toTensor();
}

}  // namespace losscli
