// What the operators of a loss over rows do on each dispatch key. Python defines them
// (losscli/operators/rows.py); this attaches the implementations:
//
//   losscli::NAME(operands..., reduction, parameters..., site) -> loss
//   losscli::NAME_backward(grad_output, operands..., reduction, parameters..., wanted)
//     -> the gradients that the kernels give; an empty one where it is not wanted
//   losscli::NAME_with_grad(operands..., reduction, parameters...) -> (loss, first gradient)
//   losscli::NAME_with_grad_(operands..., reduction, parameters...) -> loss, the first gradient
//     written over its operand; not of all losses
//   losscli::NAME_of_part(operands..., reduction, parameters...) -> the values of a part of each
//     row, without a derivative; of kl_divergence
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

using BoxedRows = BoxedCall<RowLossDefinition, 0, 0>;

void row_backward_autograd(const BoxedCall<RowLossDefinition, 1, 1>& boxed) {
  const Tensors tensors = boxed.tensors();
  if (wants_grad(tensors) || have_tangents(tensors))
    call_operator(boxed.loss, "_backward_reference", boxed.stack);
  else
    boxed.redispatch();
}

void row_with_grad_compute(const BoxedRows& boxed) {
  const Tensors operands = boxed.operands();
  LossAndGradients result = boxed.loss.compute_loss(boxed.call(), operands, {true}, nullptr);
  boxed.give_back(std::move(result.loss), as_input(result.gradients[0], operands[0]));
}

void row_in_place_compute(const BoxedRows& boxed) {
  boxed.give_back(boxed.loss.compute_loss_in_place(boxed.call(), boxed.operands()));
}

void row_of_part_compute(const BoxedRows& boxed) {
  boxed.give_back(boxed.loss.compute_part(boxed.call(), boxed.operands()));
}

// They return a gradient and have none: where one would be asked for, they say so.
template <bool kInPlace>
void row_with_grad_autograd(const BoxedRows& boxed) {
  const Tensors operands = boxed.operands();
  const std::string& name = boxed.loss.name;
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(is_transformed(boxed.keys) && wants_grad(operands)) && !have_tangents(operands), name,
      "_with_grad returns the gradient itself and cannot be differentiated; call ", name,
      " instead");
  TORCH_CHECK(!kInPlace || !(at::GradMode::is_enabled() && operands[0].requires_grad()), name,
              "_with_grad: the gradient cannot be written over an ", boxed.loss.operand_names[0],
              " that requires grad; call it under torch.no_grad()");
  boxed.redispatch();
  if (kInPlace && !operands[0].is_inference()) torch::autograd::impl::bump_version(operands[0]);
}

}  // namespace

void implement_loss(const RowLossDefinition& loss) {
  torch::Library& library = implementations("losscli");
  for (const auto key : kAutogradKeys) {
    implement(library, loss.name, key, loss, loss_autograd);
    implement(library, loss.name + "_backward", key, loss, row_backward_autograd);
    implement(library, loss.name + "_with_grad", key, loss, row_with_grad_autograd<false>);
    if (has_operator(loss, "_with_grad_"))
      implement(library, loss.name + "_with_grad_", key, loss, row_with_grad_autograd<true>);
  }
  implement_autocast(library, loss);
}

void implement_kernels(const RowLossDefinition& loss, DeviceKind device) {
  const auto key = device == DeviceKind::cpu ? DispatchKey::CPU : DispatchKey::CUDA;
  torch::Library& library = implementations("losscli");
  implement(library, loss.name, key, loss, loss_compute);
  implement(library, loss.name + "_backward", key, loss, backward_compute);
  implement(library, loss.name + "_with_grad", key, loss, row_with_grad_compute);
  if (has_operator(loss, "_with_grad_"))
    implement(library, loss.name + "_with_grad_", key, loss, row_in_place_compute);
  if (has_operator(loss, "_of_part"))
    implement(library, loss.name + "_of_part", key, loss, row_of_part_compute);
}

}  // namespace losscli
