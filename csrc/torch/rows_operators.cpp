// What the operators of a loss over rows do on each dispatch key. Python defines them
// (losscli/operators/rows.py); this attaches the implementations:
//
//   losscli::NAME(operands..., reduction, parameters..., site) -> loss
//   losscli::NAME_backward(grad_output, operands..., reduction, parameters..., wanted)
//     -> the gradients that the kernels give; an empty one where it is not wanted
//   losscli::NAME_with_grad(operands..., reduction, parameters...) -> (loss, first gradient)
//   losscli::NAME_with_grad_(operands..., reduction, parameters...) -> loss, the first gradient
//     written over its operand; not of all losses
//
// The kernels have first derivatives of rows. Where more is asked for, the gradient of another
// operand, a second derivative, forward mode or a transform, the loss is composed of ATen's
// operators, which have all of that: losscli::NAME_reference and NAME_backward_reference.
#include "torch/boxed.h"
#include "torch/rows.h"

namespace losscli {
namespace {

using at::Tensor;
using c10::DispatchKey;

class RowBackwardAutograd final : public CallKernel<RowLossDefinition, 1, 1> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Tensors tensors = this->tensors(*stack);
    if (wants_grad(tensors) || have_tangents(tensors))
      call_operator(loss_, "_backward_reference", *stack);
    else
      redispatch(op, keys, *stack);
  }
};

class RowWithGradCompute final : public CallKernel<RowLossDefinition, 0, 0> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const Tensors operands = this->operands(*stack);
    LossAndGradients result = loss_.compute_loss(call(*stack), operands, {true}, nullptr);
    give_back(*stack, std::move(result.loss), as_input(result.gradients[0], operands[0]));
  }
};

class RowInPlaceCompute final : public CallKernel<RowLossDefinition, 0, 0> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    give_back(*stack, loss_.compute_loss_in_place(call(*stack), operands(*stack)));
  }
};

// They return a gradient and have none: where one would be asked for, they say so.
template <bool kInPlace>
class RowWithGradAutograd final : public CallKernel<RowLossDefinition, 0, 0> {
 public:
  using CallKernel<RowLossDefinition, 0, 0>::CallKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Tensors operands = this->operands(*stack);
    const std::string& name = this->loss_.name;
    TORCH_CHECK_NOT_IMPLEMENTED(
        !(is_transformed(keys) && wants_grad(operands)) && !have_tangents(operands), name,
        "_with_grad returns the gradient itself and cannot be differentiated; call ", name,
        " instead");
    TORCH_CHECK(!kInPlace || !(at::GradMode::is_enabled() && operands[0].requires_grad()), name,
                "_with_grad: the gradient cannot be written over an ", this->loss_.operand_names[0],
                " that requires grad; call it under torch.no_grad()");
    this->redispatch(op, keys, *stack);
    if (kInPlace && !operands[0].is_inference()) torch::autograd::impl::bump_version(operands[0]);
  }
};

bool has_in_place(const RowLossDefinition& loss) {
  const std::string name = "losscli::" + loss.name + "_with_grad_";
  return c10::Dispatcher::singleton().findSchema({name, ""}).has_value();
}

}  // namespace

void implement_loss(const RowLossDefinition& loss) {
  torch::Library& library = implementations("losscli");
  for (const auto key : kAutogradKeys) {
    implement<LossAutograd>(library, loss.name, key, loss);
    implement<RowBackwardAutograd>(library, loss.name + "_backward", key, loss);
    implement<RowWithGradAutograd<false>>(library, loss.name + "_with_grad", key, loss);
    if (has_in_place(loss))
      implement<RowWithGradAutograd<true>>(library, loss.name + "_with_grad_", key, loss);
  }
  implement_autocast(library, loss);
}

void implement_kernels(const RowLossDefinition& loss, DeviceKind device) {
  const auto key = device == DeviceKind::cpu ? DispatchKey::CPU : DispatchKey::CUDA;
  torch::Library& library = implementations("losscli");
  implement<LossCompute>(library, loss.name, key, loss);
  implement<BackwardCompute>(library, loss.name + "_backward", key, loss);
  implement<RowWithGradCompute>(library, loss.name + "_with_grad", key, loss);
  if (has_in_place(loss))
    implement<RowInPlaceCompute>(library, loss.name + "_with_grad_", key, loss);
}

}  // namespace losscli
