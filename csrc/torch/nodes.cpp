#include "torch/nodes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>
#include <utility>

#include "torch/rows.h"
#include "torch/tangents.h"

namespace losscli {

using at::Tensor;

namespace {

Tensors unpack(const SavedOperands& saved) {
  Tensors operands;
  for (const SavedVariable& operand : saved) operands.push_back(operand.unpack());
  return operands;
}

bool is_any(const Wanted& wanted) {
  return std::find(wanted.begin(), wanted.end(), true) != wanted.end();
}

// Compiled autograd: what is compiled in. The saved tensors are inputs of the compiled pass.
template <typename Call>
void collect_call(CompiledNodeArgs& arguments, const Call& call) {
  arguments.collect(call.loss->name);
  arguments.collect(static_cast<int32_t>(call.reduction));
  for (const double parameter : call.parameters) arguments.collect(parameter);
}

void collect_saved(CompiledNodeArgs& arguments, const SavedOperands& saved) {
  for (const SavedVariable& operand : saved) arguments.collect(operand, false);
}

// Runs a backward pass on what the compiled pass has in place of the saved tensors.
template <typename Body>
variable_list on_swapped(SwapSavedVariables& swap, c10::ArrayRef<SavedVariable*> every, Body body) {
  for (SavedVariable* saved : every) swap.before(*saved);
  variable_list result = body();
  for (SavedVariable* saved : every) swap.after(*saved);
  return result;
}

c10::SmallVector<SavedVariable*, 12> every_of(SavedOperands& first) {
  c10::SmallVector<SavedVariable*, 12> all;
  for (SavedVariable& saved : first) all.push_back(&saved);
  return all;
}

}  // namespace

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

template <typename Call>
std::string LossBackward<Call>::name() const {
  return "losscli_" + call.loss->name + "_backward";
}

template <typename Call>
void LossBackward<Call>::save(at::ArrayRef<Tensor> operands) {
  for (const Tensor& operand : operands) operands_.push_back(SavedVariable(operand, false));
  seen_.remember(operands);
}

template <typename Call>
void LossBackward<Call>::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& operand : operands_) operand.reset_data();
  gradients_.clear();
  turn_.end();
}

template <typename Call>
Tensor LossBackward<Call>::compute(at::ArrayRef<Tensor> operands, const Wanted& ahead) {
  seen_.note(operands);
  if (is_any(ahead) && pays_ahead(call, operands))
    turn_.begin(call.loss, call.reduction, call.site, type_of(call, operands),
                operands[0].device());
  Expectation* const expectation = turn_.writes();
  LossAndGradients result =
      compute_loss(call, operands, expectation ? ahead : Wanted{}, expectation);
  gradients_ = std::move(result.gradients);
  return std::move(result.loss);
}

template <typename Call>
Wanted LossBackward<Call>::wanted() {
  Wanted wanted{};
  for (size_t k = 0; k < call.loss->gradients(); ++k) wanted[k] = task_should_compute_output(k);
  return wanted;
}

template <typename Call>
Tensors LossBackward<Call>::take_written(const Tensor& grad_output, at::ArrayRef<Tensor> operands,
                                         const Wanted& wanted) {
  Tensors gradients = std::exchange(gradients_, {});
  gradients.resize(call.loss->gradients());
  bool any = false;
  for (size_t k = 0; k < gradients.size(); ++k) {
    if (!wanted[k]) gradients[k] = Tensor();
    any = any || gradients[k].defined();
  }
  const auto none = [&] { return Tensors(gradients.size()); };
  if (!any || !seen_.are(operands)) return none();
  const auto device = operands[0].device();
  const ExpectationLease lease = turn_.take(device);
  if (!lease.get()) return none();
  gradients = check_gradients(call, grad_output, operands, std::move(gradients), lease.get());
  turn_.gave_out(call.name(), lease, device);
  return gradients;
}

template <typename Call>
variable_list LossBackward<Call>::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Tensors operands = unpack(operands_);
  variable_list result(call.loss->gradients());
  Wanted wanted = this->wanted();
  if (!grads[0].defined() || !is_any(wanted)) return result;
  seen_.check_shapes(call.name(), call.loss->operand_words, operands);

  Tensors all = operands;
  all.push_back(grads[0]);
  if (at::GradMode::is_enabled() || !runs_directly(dispatch_keys(all)) || have_tangents(all))
    return apply_dispatched(grads[0], operands, wanted);

  // What is written ahead may leave only once: with a retained graph it would have to be right
  // again for the next incoming gradient, while the last one's owner still holds it.
  ExpectationLease learner;
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    const Tensors ready = take_written(grads[0], operands, wanted);
    std::copy(ready.begin(), ready.end(), result.begin());
    // Where guesses fail nothing was written, and this pass is to learn.
    learner = turn_.take(operands[0].device());
  }
  for (size_t k = 0; k < result.size(); ++k) wanted[k] = wanted[k] && !result[k].defined();
  if (!is_any(wanted)) return result;
  const Tensors computed = compute_gradients(call, grads[0], operands, wanted, learner.get());
  for (size_t k = 0; k < result.size(); ++k)
    if (wanted[k]) result[k] = computed[k];
  return result;
}

template <typename Call>
variable_list LossBackward<Call>::apply_dispatched(const Tensor& grad_output,
                                                   at::ArrayRef<Tensor> operands,
                                                   const Wanted& wanted) const {
  const Tensors gradients = call_backward(call, grad_output, operands, wanted);
  variable_list result(gradients.size());
  for (size_t k = 0; k < result.size(); ++k)
    if (wanted[k]) result[k] = gradients[k];
  return result;
}

template <typename Call>
void LossBackward<Call>::compiled_args(CompiledNodeArgs& arguments) const {
  collect_call(arguments, call);
  collect_saved(arguments, operands_);
}

template <typename Call>
variable_list LossBackward<Call>::apply_with_saved(const variable_list& grads,
                                                   SwapSavedVariables& swap) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return on_swapped(swap, every_of(operands_), [&] {
    const Wanted wanted = this->wanted();
    if (!grads[0].defined() || !is_any(wanted)) return variable_list(call.loss->gradients());
    return apply_dispatched(grads[0], unpack(operands_), wanted);
  });
}

template struct LossBackward<LossCall>;
template struct LossBackward<RowCall>;

void GradientsBackward::compiled_args(CompiledNodeArgs& arguments) const {
  collect_call(arguments, call);
  for (const bool wants : wanted) arguments.collect(wants);
  arguments.collect(grad_output, false);
  collect_saved(arguments, operands);
}

variable_list GradientsBackward::apply_with_saved(const variable_list& grads,
                                                  SwapSavedVariables& swap) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto every = every_of(operands);
  every.push_back(&grad_output);
  return on_swapped(swap, every, [&] { return apply_dispatched(grads); });
}

void SecondDerivativesBackward::compiled_args(CompiledNodeArgs& arguments) const {
  collect_call(arguments, call);
  collect_saved(arguments, vectors);
  arguments.collect(grad_output, false);
  collect_saved(arguments, operands);
}

variable_list SecondDerivativesBackward::apply_with_saved(const variable_list& grads,
                                                          SwapSavedVariables& swap) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto every = every_of(vectors);
  every.push_back(&grad_output);
  for (SavedVariable& operand : operands) every.push_back(&operand);
  return on_swapped(swap, every, [&] { return apply_dispatched(grads); });
}

}  // namespace losscli
