#include "torch/nodes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

#include "torch/tangents.h"

namespace losscli {

using at::Tensor;

Tensors unpack(const SavedOperands& saved) {
  Tensors operands;
  for (const SavedVariable& operand : saved) operands.push_back(operand.unpack());
  return operands;
}

std::string GradientsBackward::name() const {
  return "losscli_" + call.loss->name + "_double_backward";
}

void GradientsBackward::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  grad_output.reset_data();
  for (SavedVariable& operand : operands) operand.reset_data();
}

variable_list GradientsBackward::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return apply_dispatched(grads);
}

variable_list GradientsBackward::apply_dispatched(const variable_list& grads) const {
  const Tensors inputs = unpack(operands);
  Tensors vectors;
  for (size_t k = 0; k < inputs.size(); ++k) {
    // A gradient that was not asked for came out as an empty tensor.
    const bool defined = wanted[k] && grads[k].defined();
    vectors.push_back(defined ? grads[k] : at::zeros_like(inputs[k]));
  }
  Tensor of_grad_output;
  const Tensors of_operands =
      call_double_backward(call, vectors, grad_output.unpack(), inputs, &of_grad_output);
  variable_list result(1 + inputs.size());
  if (task_should_compute_output(0)) result[0] = of_grad_output;
  for (size_t k = 0; k < inputs.size(); ++k)
    if (task_should_compute_output(1 + k)) result[1 + k] = of_operands[k];
  return result;
}

std::string SecondDerivativesBackward::name() const {
  return "losscli_" + call.loss->name + "_third_derivatives";
}

void SecondDerivativesBackward::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& vector : vectors) vector.reset_data();
  grad_output.reset_data();
  for (SavedVariable& operand : operands) operand.reset_data();
}

variable_list SecondDerivativesBackward::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return apply_dispatched(grads);
}

variable_list SecondDerivativesBackward::apply_dispatched(const variable_list& grads) const {
  const Tensors inputs = unpack(operands);
  const size_t count = inputs.size();
  for (size_t k = 0; k < count; ++k)
    TORCH_CHECK_NOT_IMPLEMENTED(!task_should_compute_output(count + 1 + k), call.name(),
                                ": third derivatives are not supported");
  const Tensor incoming = grad_output.unpack();
  Tensors weights;
  for (size_t k = 0; k < count; ++k)
    weights.push_back(grads[1 + k].defined() ? grads[1 + k] : at::zeros_like(inputs[k]));

  variable_list result(2 * count + 1);
  Wanted wanted{};
  bool any = false;
  for (size_t k = 0; k < count; ++k) any = (wanted[k] = task_should_compute_output(k)) || any;
  if (any) {
    const Tensors products = call_double_backward(call, weights, incoming, inputs);
    const Tensors gradients =
        grads[0].defined() ? call_backward(call, grads[0], inputs, wanted) : Tensors(count);
    for (size_t k = 0; k < count; ++k)
      if (wanted[k]) result[k] = gradients[k].defined() ? products[k] + gradients[k] : products[k];
  }
  if (task_should_compute_output(count)) {
    // Without a reduction the gradient is that of each element.
    Tensors whole = inputs, along = unpack(vectors);
    if (call.reduction == Reduction::none)
      for (size_t k = 0; k < count; ++k) {
        whole[k] = whole[k].expand_symint(incoming.sym_sizes());
        along[k] = along[k].expand_symint(incoming.sym_sizes());
      }
    const Tensors products = call_double_backward(call, along, at::ones_like(incoming), whole);
    for (size_t k = 0; k < count; ++k) {
      Tensor term = products[k] * weights[k];
      if (call.reduction != Reduction::none) term = term.sum().reshape_symint(incoming.sym_sizes());
      result[count] = k == 0 ? term : result[count] + term;
    }
    result[count] = result[count].to(incoming.scalar_type());
  }
  return result;
}

Tensor WrittenAhead::compute(const LossCall& call, at::ArrayRef<Tensor> operands,
                             const Wanted& wanted) {
  bool any = false;
  for (size_t k = 0; k < operands.size(); ++k) any = any || wanted[k];
  seen.note(operands);
  if (any && pays_ahead(call, operands))
    turn_.begin(call.loss, call.reduction, call.site, promoted_type(operands),
                operands[0].device());
  Expectation* const expectation = turn_.writes();
  LossAndGradients result =
      compute_loss(call, operands, expectation ? wanted : Wanted{}, Tensor(), expectation);
  gradients_ = std::move(result.gradients);
  return std::move(result.loss);
}

Tensors WrittenAhead::take(const LossCall& call, const Tensor& grad_output,
                           at::ArrayRef<Tensor> operands, const Wanted& wanted) {
  Tensors gradients = std::exchange(gradients_, {});
  gradients.resize(operands.size());
  bool any = false;
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (!wanted[k]) gradients[k] = Tensor();
    any = any || gradients[k].defined();
  }
  const auto none = [&] { return Tensors(operands.size()); };
  if (!any || !seen.are(operands)) return none();
  const auto device = operands[0].device();
  const ExpectationLease lease = turn_.take(device);
  if (!lease.get()) return none();
  check_gradients(call, grad_output, operands, gradients, lease.get());
  turn_.gave_out(call.name(), lease, device);
  for (size_t k = 0; k < gradients.size(); ++k)
    gradients[k] = as_operand(gradients[k], operands[k]);
  return gradients;
}

void WrittenAhead::drop() {
  gradients_.clear();
  turn_.end();
}

std::string LossBackward::name() const { return "losscli_" + call.loss->name + "_backward"; }

void LossBackward::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& operand : operands) operand.reset_data();
  ahead.drop();
}

variable_list LossBackward::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Tensors inputs = unpack(operands);
  variable_list result(inputs.size());
  if (!grads[0].defined()) return result;
  ahead.seen.check_shapes(call.name(), call.loss->operand_words, inputs);
  Wanted wanted{};
  for (size_t k = 0; k < inputs.size(); ++k) wanted[k] = task_should_compute_output(k);

  Tensors all = inputs;
  all.push_back(grads[0]);
  if (at::GradMode::is_enabled() || !runs_directly(dispatch_keys(all)) || have_tangents(all))
    return apply_dispatched(grads[0], inputs, wanted);

  // What is written ahead may leave only once: with a retained graph it would have to be right
  // again for the next incoming gradient, while the last one's owner still holds it.
  ExpectationLease learner;
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    const Tensors ready = ahead.take(call, grads[0], inputs, wanted);
    for (size_t k = 0; k < inputs.size(); ++k) result[k] = ready[k];
    learner = ahead.take_learner(inputs[0].device());
  }
  bool left = false;
  for (size_t k = 0; k < inputs.size(); ++k) {
    wanted[k] = wanted[k] && !result[k].defined();
    left = left || wanted[k];
  }
  if (!left) return result;
  const Tensors computed = compute_gradients(call, grads[0], inputs, wanted, learner.get());
  for (size_t k = 0; k < inputs.size(); ++k)
    if (wanted[k]) result[k] = computed[k];
  return result;
}

// Through the operator, for whoever has to see it: a tracer, autograd itself, or forward mode.
variable_list LossBackward::apply_dispatched(const Tensor& grad_output, at::ArrayRef<Tensor> inputs,
                                             const Wanted& wanted) const {
  const Tensors gradients = call_backward(call, grad_output, inputs, wanted);
  variable_list result(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k)
    if (wanted[k]) result[k] = gradients[k];
  return result;
}

}  // namespace losscli
