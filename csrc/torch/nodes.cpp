#include "torch/nodes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

#include <algorithm>
#include <utility>

#include "torch/tangents.h"

namespace losscli {

using at::Tensor;

void CallNode::save(TensorList tensors) {
  for (const Tensor& tensor : tensors) {
    saved_.push_back(SavedVariable(tensor, false));
    versions_.push_back(tensor.defined() ? tensor._version() : 0);
  }
}

Tensor CallNode::unpack(size_t place) const {
  const SavedVariable& saved = saved_[place];
  try {
    return saved.unpack();
  } catch (const c10::Error&) {
    const auto tensor = saved.get_raw_data();
    if (!tensor || !tensor->defined() || tensor->_version() == versions_[place]) throw;
    // The operands come last.
    const size_t before = saved_.size() - call.loss->operands();
    const std::string name =
        place < before ? "grad_output" : call.loss->operand_names[place - before];
    TORCH_CHECK(false, call.name(), ": ", name,
                " has been modified by an inplace operation since the loss was computed, but "
                "backward may need its values; pass a copy to the loss, ",
                name, ".clone(), or change a copy");
  }
}

Tensors CallNode::unpack() const {
  Tensors tensors;
  for (size_t place = 0; place < saved_.size(); ++place) tensors.push_back(unpack(place));
  return tensors;
}

void CallNode::release_variables() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& saved : saved_) saved.reset_data();
  forget();
}

variable_list CallNode::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return apply_dispatched(grads, unpack());
}

// Compiled autograd: what is compiled in. The saved tensors are inputs of the compiled pass.
void CallNode::compiled_args(CompiledNodeArgs& arguments) const {
  arguments.collect(call.loss->name);
  arguments.collect(static_cast<int32_t>(call.reduction));
  for (const double parameter : call.parameters) arguments.collect(parameter);
  for (const SavedVariable& saved : saved_) arguments.collect(saved, false);
}

// On what the compiled pass has in place of the saved tensors.
variable_list CallNode::apply_with_saved(const variable_list& grads, SwapSavedVariables& swap) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (SavedVariable& saved : saved_) swap.before(saved);
  variable_list result = apply_dispatched(grads, unpack());
  for (SavedVariable& saved : saved_) swap.after(saved);
  return result;
}

void GradientsBackward::compiled_args(CompiledNodeArgs& arguments) const {
  CallNode::compiled_args(arguments);
  for (const bool wants : wanted) arguments.collect(wants);
}

variable_list GradientsBackward::apply_dispatched(const variable_list& grads, TensorList saved) {
  const TensorList inputs = saved.slice(1);
  Tensors vectors;
  for (size_t k = 0; k < inputs.size(); ++k) {
    // A gradient that was not asked for came out as an empty tensor.
    const bool defined = wanted[k] && grads[k].defined();
    vectors.push_back(defined ? grads[k] : at::zeros_like(inputs[k]));
  }
  const Tensors products = call_double_backward(call, vectors, saved[0], inputs);
  variable_list result(products.size());
  for (size_t k = 0; k < result.size(); ++k)
    if (task_should_compute_output(k)) result[k] = products[k];
  return result;
}

variable_list SecondDerivativesBackward::apply_dispatched(const variable_list& grads,
                                                          TensorList saved) {
  const size_t count = saved.size() / 2;
  const Tensor& incoming = saved[count];
  const TensorList inputs = saved.slice(count + 1);
  for (size_t k = 0; k < count; ++k)
    TORCH_CHECK_NOT_IMPLEMENTED(!task_should_compute_output(count + 1 + k), call.name(),
                                ": third derivatives are not supported");
  Tensors weights;
  for (size_t k = 0; k < count; ++k)
    weights.push_back(grads[1 + k].defined() ? grads[1 + k] : at::zeros_like(inputs[k]));

  variable_list result(2 * count + 1);
  Wanted wanted{};
  for (size_t k = 0; k < count; ++k) wanted[k] = task_should_compute_output(k);
  if (is_any(wanted)) {
    const Tensors products = call_double_backward(call, weights, incoming, inputs);
    const Tensors gradients =
        grads[0].defined() ? call_backward(call, grads[0], inputs, wanted) : Tensors(count);
    for (size_t k = 0; k < count; ++k)
      if (wanted[k])
        result[k] = gradients[k].defined() ? products[1 + k] + gradients[k] : products[1 + k];
  }
  if (task_should_compute_output(count)) {
    // Without a reduction the gradient is that of each element.
    Tensors whole(inputs.begin(), inputs.end()), along(saved.begin(), saved.begin() + count);
    if (call.reduction == Reduction::none)
      for (size_t k = 0; k < count; ++k) {
        whole[k] = whole[k].expand_symint(incoming.sym_sizes());
        along[k] = along[k].expand_symint(incoming.sym_sizes());
      }
    const Tensors products = call_double_backward(call, along, at::ones_like(incoming), whole);
    for (size_t k = 0; k < count; ++k) {
      Tensor term = products[1 + k] * weights[k];
      if (call.reduction != Reduction::none) term = term.sum().reshape_symint(incoming.sym_sizes());
      result[count] = k == 0 ? term : result[count] + term;
    }
    result[count] = result[count].to(incoming.scalar_type());
  }
  return result;
}

void LossBackward::save(TensorList operands) {
  CallNode::save(operands);
  seen_.remember(operands);
}

void LossBackward::forget() {
  gradients_.clear();
  turn_.end();
}

Tensor LossBackward::compute(TensorList operands, const Wanted& ahead) {
  seen_.note(operands);
  if (is_any(ahead) && call.loss->pays_ahead(call, operands))
    turn_.begin(call, call.loss->type_of(operands), operands[0].device());
  Expectation* const expectation = turn_.writes(call.loss->adds_otherwise_ahead());
  LossAndGradients result =
      call.loss->compute_loss(call, operands, expectation ? ahead : Wanted{}, expectation);
  gradients_ = std::move(result.gradients);
  return std::move(result.loss);
}

Wanted LossBackward::wanted() {
  Wanted wanted{};
  for (size_t k = 0; k < call.loss->gradients; ++k) wanted[k] = task_should_compute_output(k);
  return wanted;
}

Tensors LossBackward::take_written(const Tensor& grad_output, TensorList operands,
                                   const Wanted& wanted) {
  Tensors gradients = std::exchange(gradients_, {});
  gradients.resize(call.loss->gradients);
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
  gradients =
      call.loss->check_gradients(call, grad_output, operands, std::move(gradients), lease.get());
  turn_.gave_out(call, lease, device);
  return gradients;
}

variable_list LossBackward::apply(variable_list&& grads) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Tensors operands = unpack();
  variable_list result(call.loss->gradients);
  Wanted wanted = this->wanted();
  if (!grads[0].defined() || !is_any(wanted)) return result;
  seen_.check_shapes(*call.loss, operands);

  Tensors all = operands;
  all.push_back(grads[0]);
  if (at::GradMode::is_enabled() || !runs_directly(dispatch_keys(all)) || have_tangents(all))
    return apply_dispatched(grads, operands);

  // What is written ahead may leave only once: with a retained graph it would have to be right
  // again for the next upstream gradient, while the last one's owner still holds it.
  ExpectationLease learner;
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    const Tensors ready = take_written(grads[0], operands, wanted);
    std::copy(ready.begin(), ready.end(), result.begin());
    // Where guesses fail nothing was written, and this pass is to learn.
    learner = turn_.take(operands[0].device());
  }
  for (size_t k = 0; k < result.size(); ++k) wanted[k] = wanted[k] && !result[k].defined();
  if (!is_any(wanted)) return result;
  const Tensors computed =
      call.loss->compute_gradients(call, grads[0], operands, wanted, learner.get());
  for (size_t k = 0; k < result.size(); ++k)
    if (wanted[k]) result[k] = computed[k];
  return result;
}

variable_list LossBackward::apply_dispatched(const variable_list& grads, TensorList operands) {
  variable_list result(call.loss->gradients);
  const Wanted wanted = this->wanted();
  if (!grads[0].defined() || !is_any(wanted)) return result;
  const Tensors gradients = call_backward(call, grads[0], operands, wanted);
  for (size_t k = 0; k < result.size(); ++k)
    if (wanted[k]) result[k] = gradients[k];
  return result;
}

}  // namespace losscli
