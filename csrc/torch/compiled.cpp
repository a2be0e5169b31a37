// Compiled autograd: what the key of a compiled backward pass has of the nodes, and how they are
// traced into it.
#include <torch/csrc/dynamo/compiled_autograd.h>

#include "torch/nodes.h"

namespace losscli {
namespace {

// What is compiled in: the rest are inputs of the compiled pass.
void collect_call(CompiledNodeArgs& arguments, const LossCall& call) {
  arguments.collect(call.loss->name);
  arguments.collect(static_cast<int32_t>(call.reduction));
  for (const double parameter : call.parameters) arguments.collect(parameter);
}

}  // namespace

void LossBackward::compiled_args(CompiledNodeArgs& arguments) const {
  collect_call(arguments, call);
  for (const SavedVariable& operand : operands) arguments.collect(operand, false);
}

variable_list LossBackward::apply_with_saved(const variable_list& grads,
                                             SwapSavedVariables& saved) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& operand : operands) saved.before(operand);
  variable_list result(operands.size());
  if (grads[0].defined()) {
    Wanted wanted{};
    for (size_t k = 0; k < operands.size(); ++k) wanted[k] = task_should_compute_output(k);
    result = apply_dispatched(grads[0], unpack(operands), wanted);
  }
  for (SavedVariable& operand : operands) saved.after(operand);
  return result;
}

void GradientsBackward::compiled_args(CompiledNodeArgs& arguments) const {
  collect_call(arguments, call);
  for (const bool wants : wanted) arguments.collect(wants);
  arguments.collect(grad_output, false);
  for (const SavedVariable& operand : operands) arguments.collect(operand, false);
}

variable_list GradientsBackward::apply_with_saved(const variable_list& grads,
                                                  SwapSavedVariables& saved) {
  const std::lock_guard<std::mutex> lock(mutex_);
  saved.before(grad_output);
  for (SavedVariable& operand : operands) saved.before(operand);
  const variable_list result = apply_dispatched(grads);
  saved.after(grad_output);
  for (SavedVariable& operand : operands) saved.after(operand);
  return result;
}

void SecondDerivativesBackward::compiled_args(CompiledNodeArgs& arguments) const {
  collect_call(arguments, call);
  for (const SavedVariable& vector : vectors) arguments.collect(vector, false);
  arguments.collect(grad_output, false);
  for (const SavedVariable& operand : operands) arguments.collect(operand, false);
}

variable_list SecondDerivativesBackward::apply_with_saved(const variable_list& grads,
                                                          SwapSavedVariables& saved) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& vector : vectors) saved.before(vector);
  saved.before(grad_output);
  for (SavedVariable& operand : operands) saved.before(operand);
  const variable_list result = apply_dispatched(grads);
  for (SavedVariable& vector : vectors) saved.after(vector);
  saved.after(grad_output);
  for (SavedVariable& operand : operands) saved.after(operand);
  return result;
}

}  // namespace losscli
