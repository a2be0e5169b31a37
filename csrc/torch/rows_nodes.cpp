#include "torch/rows_nodes.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <utility>

#include "torch/rows_stack.h"
#include "torch/tangents.h"

namespace losscli {

using at::Tensor;

std::string RowsBackward::name() const { return "losscli_" + call.loss->name + "_backward"; }

void RowsBackward::save(const RowOperands& operands) {
  input_ = SavedVariable(operands.input, false);
  target_ = SavedVariable(operands.target, false);
  if (operands.weight.defined()) weight_ = SavedVariable(operands.weight, false);
  seen_.remember(operands.tensors());
}

RowOperands RowsBackward::unpack() const {
  return {input_.unpack(), target_.unpack(), weight_.unpack()};
}

void RowsBackward::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable* saved : {&input_, &target_, &weight_}) saved->reset_data();
  gradient_.reset();
  turn_.end();
}

Tensor RowsBackward::compute(const RowOperands& operands, bool ahead) {
  seen_.note(operands.tensors());
  if (ahead && !operands.is_empty())
    turn_.begin(call.loss, call.reduction, call.site, type_of(operands), operands.input.device());
  Expectation* const expectation = turn_.writes();
  RowResult result = compute_rows(call, operands, expectation != nullptr, expectation);
  gradient_ = std::move(result.gradient);
  return std::move(result.loss);
}

// The gradient that was written ahead, once; undefined where none was, or not for these operands,
// or it cannot be checked here.
Tensor RowsBackward::take_written(const Tensor& grad_output, const RowOperands& operands) {
  const Tensor gradient = std::exchange(gradient_, Tensor());
  if (!gradient.defined() || !seen_.are(operands.tensors())) return {};
  const auto device = operands.input.device();
  const ExpectationLease lease = turn_.take(device);
  if (!lease.get()) return {};
  check_row_gradient(call, grad_output, operands, gradient, lease.get());
  turn_.gave_out(call.name(), lease, device);
  return as_input(gradient, operands.input);
}

variable_list RowsBackward::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const RowOperands operands = unpack();
  if (!grads[0].defined() || !task_should_compute_output(0)) return {Tensor()};
  const auto tensors = operands.tensors();
  seen_.check_shapes(call.name(), kRowOperandNames, tensors);

  c10::SmallVector<Tensor, 4> all(tensors.begin(), tensors.end());
  all.push_back(grads[0]);
  if (at::GradMode::is_enabled() || !runs_directly(dispatch_keys(all)) || have_tangents(all))
    return {call_row_backward(call, grads[0], operands)};

  // What is written ahead may leave only once: with a retained graph it would have to be right
  // again for the next incoming gradient, while the last one's owner still holds it.
  ExpectationLease learner;
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    Tensor written = take_written(grads[0], operands);
    if (written.defined()) return {std::move(written)};
    learner = turn_.take(operands.input.device());
  }
  return {compute_row_gradient(call, grads[0], operands, learner.get())};
}

// Compiled autograd: the settings are compiled in, the operands are inputs of the compiled pass.
void RowsBackward::compiled_args(CompiledNodeArgs& arguments) const {
  arguments.collect(call.loss->name);
  arguments.collect(static_cast<int32_t>(call.reduction));
  arguments.collect(call.ignore_index);
  for (const double setting : {call.label_smoothing, call.temperature, call.softcap, call.z_loss})
    arguments.collect(setting);
  for (const SavedVariable* saved : {&input_, &target_, &weight_}) arguments.collect(*saved, false);
}

variable_list RowsBackward::apply_with_saved(const variable_list& grads, SwapSavedVariables& swap) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable* saved : {&input_, &target_, &weight_}) swap.before(*saved);
  variable_list result(1);
  if (grads[0].defined() && task_should_compute_output(0))
    result[0] = call_row_backward(call, grads[0], unpack());
  for (SavedVariable* saved : {&input_, &target_, &weight_}) swap.after(*saved);
  return result;
}

}  // namespace losscli
