#include "torch/functors_nodes.h"

#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <utility>

#include "torch/functors_stack.h"
#include "torch/rows.h"
#include "torch/tangents.h"

namespace losscli {

using at::Tensor;

std::string FunctorBackward::name() const { return "losscli_" + call.loss->name + "_backward"; }

void FunctorBackward::save(const FunctorOperands& operands) {
  for (const Tensor& operand : operands) {
    saved_.push_back(operand.defined() ? SavedVariable(operand, false) : SavedVariable());
    is_saved_.push_back(operand.defined());
  }
  seen_.remember(defined(operands));
}

FunctorOperands FunctorBackward::unpack() const {
  FunctorOperands operands;
  for (size_t k = 0; k < saved_.size(); ++k)
    operands.push_back(is_saved_[k] ? saved_[k].unpack() : Tensor());
  return operands;
}

void FunctorBackward::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& saved : saved_) saved.reset_data();
  gradients_ = {};
  turn_.end();
}

Tensor FunctorBackward::compute(const FunctorOperands& operands, const FunctorWanted& ahead) {
  seen_.note(defined(operands));
  if (is_any(ahead) && !is_empty(operands))
    turn_.begin(call.loss, call.reduction, call.site, type_of(call, operands),
                operands[0].device());
  Expectation* const expectation = turn_.writes();
  FunctorResult result =
      compute_functor(call, operands, expectation ? ahead : FunctorWanted{}, expectation);
  gradients_ = std::move(result.gradients);
  return std::move(result.loss);
}

FunctorWanted FunctorBackward::wanted() {
  FunctorWanted wanted{};
  for (size_t k = 0; k < call.loss->rows(); ++k) wanted[k] = task_should_compute_output(k);
  return wanted;
}

FunctorGradients FunctorBackward::take_written(const Tensor& grad_output,
                                               const FunctorOperands& operands,
                                               const FunctorWanted& wanted) {
  FunctorGradients gradients = std::exchange(gradients_, {});
  for (size_t k = 0; k < call.loss->rows(); ++k) {
    if (wanted[k] && !gradients[k].defined()) return {};
    if (!wanted[k]) gradients[k] = Tensor();
  }
  if (!seen_.are(defined(operands))) return {};
  const auto device = operands[0].device();
  const ExpectationLease lease = turn_.take(device);
  if (!lease.get()) return {};
  check_functor_gradients(call, grad_output, operands, gradients, lease.get());
  turn_.gave_out(call.name(), lease, device);
  for (size_t k = 0; k < call.loss->rows(); ++k)
    if (gradients[k].defined()) gradients[k] = as_input(gradients[k], operands[k]);
  return gradients;
}

variable_list FunctorBackward::as_list(const FunctorGradients& gradients) const {
  return {gradients.begin(), gradients.begin() + static_cast<int64_t>(call.loss->rows())};
}

variable_list FunctorBackward::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const FunctorOperands operands = unpack();
  const FunctorWanted wanted = this->wanted();
  if (!grads[0].defined() || !is_any(wanted)) return as_list({});
  FunctorOperands all = defined(operands);
  seen_.check_shapes(call.name(), call.loss->operand_words, all);
  all.push_back(grads[0]);
  if (at::GradMode::is_enabled() || !runs_directly(dispatch_keys(all)) || have_tangents(all))
    return as_list(call_functor_backward(call, grads[0], operands, wanted));

  // What is written ahead may leave only once: with a retained graph it would have to be right
  // again for the next incoming gradient, while the last one's owner still holds it.
  ExpectationLease learner;
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    const FunctorGradients written = take_written(grads[0], operands, wanted);
    for (const Tensor& gradient : written)
      if (gradient.defined()) return as_list(written);
    learner = turn_.take(operands[0].device());
  }
  return as_list(compute_functor_gradients(call, grads[0], operands, wanted, learner.get()));
}

// Compiled autograd: the settings are compiled in, the operands are inputs of the compiled pass.
void FunctorBackward::compiled_args(CompiledNodeArgs& arguments) const {
  arguments.collect(call.loss->name);
  arguments.collect(static_cast<int32_t>(call.reduction));
  for (const double parameter : call.parameters) arguments.collect(parameter);
  for (size_t k = 0; k < saved_.size(); ++k) {
    arguments.collect(static_cast<bool>(is_saved_[k]));
    arguments.collect(saved_[k], false);
  }
}

variable_list FunctorBackward::apply_with_saved(const variable_list& grads,
                                                SwapSavedVariables& swap) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& saved : saved_) swap.before(saved);
  FunctorGradients result;
  const FunctorWanted wanted = this->wanted();
  if (grads[0].defined() && is_any(wanted))
    result = call_functor_backward(call, grads[0], unpack(), wanted);
  for (SavedVariable& saved : saved_) swap.after(saved);
  return as_list(result);
}

}  // namespace losscli
