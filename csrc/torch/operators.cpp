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
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "torch/boxed.h"
#include "torch/compute.h"

namespace losscli {
namespace {

using at::Tensor;

class WithGrad : public CallKernel<LossDefinition, 0, 2> {
 public:
  using CallKernel::CallKernel;

 protected:
  // Undefined where none is given.
  Tensor grad_output(const Stack& stack) const {
    const c10::IValue& given = (stack.end() - 2)[0];
    return given.isNone() ? Tensor() : given.toTensor();
  }
};

class WithGradCompute final : public WithGrad {
 public:
  using WithGrad::WithGrad;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    auto [loss, gradient] =
        compute(call(*stack), operands(*stack), grad_output(*stack), last(*stack).toDouble());
    give_back(*stack, std::move(loss), std::move(gradient));
  }

 private:
  std::pair<Tensor, Tensor> compute(const Call& call, const Tensors& operands, Tensor grad_output,
                                    double factor) const {
    TORCH_CHECK_TYPE(operands[0].is_floating_point(), call.name(), ": an ", loss_.operand_names[0],
                     " of ", operands[0].scalar_type(),
                     " has no gradient; convert it with .float()");
    if (factor != 1) {
      // In float64, so that it is rounded once, with the scale of the mean.
      const auto number = operands[0].options().dtype(at::kDouble);
      grad_output = grad_output.defined() ? grad_output.mul(factor) : at::full({}, factor, number);
    }
    const bool one_launch = call.reduction != Reduction::none || !grad_output.defined();
    Wanted wanted{};
    wanted[0] = one_launch;
    LossAndGradients result =
        loss_.compute_loss(call, operands, wanted, nullptr, one_launch ? grad_output : Tensor());
    if (result.gradients[0].defined() && result.gradients[0].numel() > 0)
      return {result.loss, as_operand(result.gradients[0], operands[0])};
    // An operand that is repeated, an incoming gradient for each element, or nothing to compute.
    if (!grad_output.defined()) grad_output = at::ones({}, result.loss.options());
    wanted[0] = true;
    return {result.loss, loss_.compute_gradients(call, grad_output.expand(result.loss.sizes()),
                                                 operands, wanted)[0]};
  }
};

// It returns a gradient and has none: where one would be asked for, it says so. Tangents it has.
class WithGradAutograd final : public WithGrad {
 public:
  using WithGrad::WithGrad;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Call call = this->call(*stack);
    const Tensors operands = this->operands(*stack);
    Tensor grad_output = this->grad_output(*stack);
    const double factor = last(*stack).toDouble();
    Tensors tensors = operands;
    if (grad_output.defined()) tensors.push_back(grad_output);
    TORCH_CHECK_NOT_IMPLEMENTED(
        !is_transformed(keys) || !wants_grad(tensors), loss_.name,
        "_loss_with_grad returns the gradient itself and cannot be differentiated in reverse mode, "
        "as torch.func.grad would; call ",
        loss_.name, "_loss instead");
    const bool dual = have_tangents(tensors);
    redispatch(op, keys, *stack);
    if (!dual) return;

    const Tensor loss = (stack->end() - 2)->toTensor(), gradient = stack->back().toTensor();
    if (have_tangents(operands)) set_loss_tangent(call, operands, loss);
    grad_output = grad_output.defined()
                      ? grad_output.mul(factor)
                      : at::full({}, factor, operands[0].options().dtype(at::kDouble));
    if (call.reduction == Reduction::none)
      grad_output = grad_output.expand_symint(loss.sym_sizes());
    set_gradient_tangents(call, grad_output, operands, {true}, gradient);
  }
};

class BackwardAutograd final : public CallKernel<LossDefinition, 1, 1> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Call call = this->call(*stack);
    const Tensors tensors = this->tensors(*stack);
    const Wanted wanted = take_wanted(last(*stack));
    const bool recorded = wants_grad(tensors), dual = have_tangents(tensors);
    redispatch(op, keys, *stack);
    if (!recorded && !dual) return;
    const size_t count = loss_.operands();
    const Tensors gradients = take_tensors(stack->data() + (stack->size() - count), count);
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
};

class DoubleBackwardCompute final : public CallKernel<LossDefinition, 1, 0, true> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const size_t count = loss_.operands();
    const Tensors tensors = this->tensors(*stack);
    auto gradients = loss_.compute_second_derivatives(
        call(*stack), TensorList(tensors).slice(0, count), tensors[count], operands(*stack));
    give_back(*stack);
    for (Tensor& gradient : gradients) stack->emplace_back(std::move(gradient));
  }
};

class DoubleBackwardAutograd final : public CallKernel<LossDefinition, 1, 0, true> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Call call = this->call(*stack);
    const Tensors tensors = this->tensors(*stack);
    TORCH_CHECK_NOT_IMPLEMENTED(!have_tangents(tensors), call.name(),
                                ": third derivatives are not supported");
    redispatch(op, keys, *stack);
    if (!wants_grad(tensors)) return;
    const auto node = make_node<SecondDerivativesBackward>(call, tensors, tensors.size());
    for (auto result = stack->end() - loss_.operands() - 1; result != stack->end(); ++result)
      torch::autograd::set_history(result->toTensor(), node);
  }
};

}  // namespace

void implement_loss(const LossDefinition& loss) {
  torch::Library& library = implementations("losscli");
  for (const auto key : kAutogradKeys) {
    implement<LossAutograd>(library, loss.name, key, loss);
    implement<WithGradAutograd>(library, loss.name + "_with_grad", key, loss);
    implement<BackwardAutograd>(library, loss.name + "_backward", key, loss);
    implement<DoubleBackwardAutograd>(library, loss.name + "_double_backward", key, loss);
  }
  implement_autocast(library, loss);
  torch::Library& bench = implementations("losscli_bench");
  for (const auto key : kAutogradKeys) implement<LossAutograd>(bench, loss.name, key, loss);
}

void implement_kernels(const LossDefinition& loss, DeviceKind device, bool strategies) {
  const auto key = device == DeviceKind::cpu ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  if (strategies) {
    implement<LossCompute>(implementations("losscli_bench"), loss.name, key, loss);
    return;
  }
  torch::Library& library = implementations("losscli");
  implement<LossCompute>(library, loss.name, key, loss);
  implement<WithGradCompute>(library, loss.name + "_with_grad", key, loss);
  implement<BackwardCompute>(library, loss.name + "_backward", key, loss);
  implement<DoubleBackwardCompute>(library, loss.name + "_double_backward", key, loss);
}

}  // namespace losscli
