// What the operators do on each dispatch key. Python defines them from the losses' specifications
// (losscli/operators/registration.py); this attaches the implementations:
//
//   losscli::NAME(operands..., reduction, parameters..., site) -> loss
//   losscli::NAME_with_grad(operands..., reduction, parameters..., grad_output, factor)
//     -> (loss, gradient of the first operand)
//   losscli::NAME_backward(grad_output, operands..., reduction, parameters..., wanted)
//     -> gradients, an empty tensor for one that is not wanted
//   losscli::NAME_double_backward(vectors..., grad_output, operands..., reduction, parameters...)
//     -> (grad_output's gradient, operands' gradients...)
//   losscli_bench::NAME(operands..., reduction, parameters..., strategy) -> loss
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "torch/boxed.h"
#include "torch/checks.h"
#include "torch/compute.h"

namespace losscli {
namespace {

using at::Tensor;

using BoxedWithGrad = BoxedCall<LossDefinition, 0, 2>;
using BoxedBackward = BoxedCall<LossDefinition, 1, 1>;
using BoxedDoubleBackward = BoxedCall<LossDefinition, 1, 0, true>;

// Undefined where none is given.
Tensor grad_output_of(const BoxedWithGrad& boxed) {
  const c10::IValue& given = (boxed.stack.end() - 2)[0];
  return given.isNone() ? Tensor() : given.toTensor();
}

// In float64, so that it is rounded once, with the scale of the mean.
Tensor times(const Tensor& grad_output, double factor, const Tensor& like) {
  return grad_output.defined() ? grad_output.mul(factor)
                               : at::full({}, factor, like.options().dtype(at::kDouble));
}

void with_grad_compute(const BoxedWithGrad& boxed) {
  const LossDefinition& loss = boxed.loss;
  const Call call = boxed.call();
  const Tensors operands = boxed.operands();
  Tensor grad_output = grad_output_of(boxed);
  const double factor = boxed.last().toDouble();
  TORCH_CHECK_TYPE(operands[0].is_floating_point(), call.name(), ": an ", loss.operand_names[0],
                   " of ", operands[0].scalar_type(), " has no gradient",
                   conversion(operands[0].scalar_type()));
  if (factor != 1) grad_output = times(grad_output, factor, operands[0]);
  const bool one_launch = call.reduction != Reduction::none || !grad_output.defined();
  LossAndGradients result =
      loss.compute_loss(call, operands, {one_launch}, nullptr, one_launch ? grad_output : Tensor());
  Tensor gradient = std::move(result.gradients[0]);
  if (gradient.defined() && gradient.numel() > 0)
    return boxed.give_back(std::move(result.loss), as_operand(gradient, operands[0]));
  // An operand that is repeated, an upstream gradient for each element, or nothing to compute.
  if (!grad_output.defined()) grad_output = at::ones({}, result.loss.options());
  gradient =
      loss.compute_gradients(call, grad_output.expand(result.loss.sizes()), operands, {true})[0];
  boxed.give_back(std::move(result.loss), std::move(gradient));
}

// It returns a gradient and has none: where one would be asked for, it says so. Tangents it has.
void with_grad_autograd(const BoxedWithGrad& boxed) {
  const std::string& name = boxed.loss.name;
  const Call call = boxed.call();
  const Tensors operands = boxed.operands();
  Tensor grad_output = grad_output_of(boxed);
  const double factor = boxed.last().toDouble();
  Tensors tensors = operands;
  if (grad_output.defined()) tensors.push_back(grad_output);
  TORCH_CHECK_NOT_IMPLEMENTED(
      !is_transformed(boxed.keys) || !wants_grad(tensors), name,
      "_loss_with_grad returns the gradient itself and cannot be differentiated in reverse mode, "
      "as torch.func.grad would; call ",
      name, "_loss instead");
  const bool dual = have_tangents(tensors);
  boxed.redispatch();
  if (!dual) return;

  const Tensor loss = (boxed.stack.end() - 2)->toTensor(), gradient = boxed.last().toTensor();
  if (have_tangents(operands)) set_loss_tangent(call, operands, loss);
  grad_output = times(grad_output, factor, operands[0]);
  if (call.reduction == Reduction::none) grad_output = grad_output.expand_symint(loss.sym_sizes());
  set_gradient_tangents(call, grad_output, operands, {true}, gradient);
}

void backward_autograd(const BoxedBackward& boxed) {
  const Call call = boxed.call();
  const Tensors tensors = boxed.tensors();
  const Wanted wanted = take_wanted(boxed.last());
  const bool recorded = wants_grad(tensors), dual = have_tangents(tensors);
  boxed.redispatch();
  if (!recorded && !dual) return;
  const size_t count = boxed.loss.operands();
  const Tensors gradients = take_tensors(boxed.stack.data() + (boxed.stack.size() - count), count);
  if (recorded) {
    const auto node = make_node<GradientsBackward>(call, tensors, tensors.size());
    node->wanted = wanted;
    // One that was not asked for has its number in the node, but no history.
    for (size_t k = 0; k < count; ++k)
      torch::autograd::set_history(wanted[k] ? gradients[k] : Tensor(), node);
  }
  if (dual)
    set_gradient_tangents(call, tensors[0], TensorList(tensors).slice(1), wanted, gradients);
}

void double_backward_compute(const BoxedDoubleBackward& boxed) {
  const size_t count = boxed.loss.operands();
  const Tensors tensors = boxed.tensors();
  auto gradients = boxed.loss.compute_second_derivatives(
      boxed.call(), TensorList(tensors).slice(0, count), tensors[count], boxed.operands());
  boxed.give_back();
  for (Tensor& gradient : gradients) boxed.stack.emplace_back(std::move(gradient));
}

void double_backward_autograd(const BoxedDoubleBackward& boxed) {
  const Call call = boxed.call();
  const Tensors tensors = boxed.tensors();
  TORCH_CHECK_NOT_IMPLEMENTED(!have_tangents(tensors), call.name(),
                              ": third derivatives are not supported");
  boxed.redispatch();
  if (!wants_grad(tensors)) return;
  const auto node = make_node<SecondDerivativesBackward>(call, tensors, tensors.size());
  const auto end = boxed.stack.end();
  for (auto result = end - boxed.loss.operands() - 1; result != end; ++result)
    torch::autograd::set_history(result->toTensor(), node);
}

}  // namespace

void implement_loss(const LossDefinition& loss) {
  torch::Library& library = implementations("losscli");
  torch::Library& bench = implementations("losscli_bench");
  for (const auto key : kAutogradKeys) {
    implement(library, loss.name, key, loss, loss_autograd);
    implement(bench, loss.name, key, loss, loss_autograd);
    implement(library, loss.name + "_with_grad", key, loss, with_grad_autograd);
    implement(library, loss.name + "_backward", key, loss, backward_autograd);
    implement(library, loss.name + "_double_backward", key, loss, double_backward_autograd);
  }
  implement_autocast(library, loss);
}

void implement_kernels(const LossDefinition& loss, DeviceKind device, bool strategies) {
  const auto key = device == DeviceKind::cpu ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  if (strategies) {
    implement(implementations("losscli_bench"), loss.name, key, loss, loss_compute);
    return;
  }
  torch::Library& library = implementations("losscli");
  implement(library, loss.name, key, loss, loss_compute);
  implement(library, loss.name + "_with_grad", key, loss, with_grad_compute);
  implement(library, loss.name + "_backward", key, loss, backward_compute);
  implement(library, loss.name + "_double_backward", key, loss, double_backward_compute);
}

}  // namespace losscli
