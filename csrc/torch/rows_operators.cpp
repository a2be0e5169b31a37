// What the operators of a loss over rows do on each dispatch key. Python defines them
// (losscli/extension/row_operators.py); this attaches the implementations:
//
//   losscli::NAME(input, target, weight, settings..., site) -> loss
//   losscli::NAME_backward(grad_output, input, target, weight, settings...) -> input's gradient
//   losscli::NAME_with_grad(input, target, weight, settings...) -> (loss, input's gradient)
//   losscli::NAME_with_grad_(input, target, weight, settings...) -> loss, the gradient in input
//
// The kernels have the first derivative of the input. Where more is asked for, a gradient of the
// target or the weight, a second derivative, forward mode or a transform, the loss is composed of
// ATen's operators, which have all of that: losscli::NAME_reference and NAME_backward_reference.
#include <ATen/SavedTensorHooks.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "torch/implement.h"
#include "torch/rows_nodes.h"
#include "torch/rows_stack.h"
#include "torch/tangents.h"

namespace losscli {
namespace {

using at::Tensor;
using c10::DispatchKey;

// A boxed kernel for one loss, whose operands come after `kBefore` other arguments and whose
// settings are followed by `kAfter` others.
template <size_t kBefore, size_t kAfter>
class RowKernel : public c10::OperatorKernel {
 public:
  explicit RowKernel(RowLossDefinition& loss) : loss_(loss) {}

 protected:
  static constexpr size_t kLength = kBefore + kRowLength + kAfter;

  static const c10::IValue* arguments(const Stack& stack) {
    return stack.data() + (stack.size() - kLength);
  }
  static RowOperands operands(const Stack& stack) {
    return take_row_operands(arguments(stack) + kBefore);
  }
  RowCall call(const Stack& stack) const {
    return take_row_call(loss_, arguments(stack) + kBefore + kRowOperands);
  }

  // Replaces the call on the stack by one of NAME plus a suffix, without the last arguments.
  void compose(const char* suffix, Stack& stack) const {
    torch::jit::drop(stack, kAfter);
    call_row_operator(loss_, suffix, stack);
  }

  static void redispatch(const OperatorHandle& op, DispatchKeySet keys, Stack& stack) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, &stack);
  }

  RowLossDefinition& loss_;
};

bool wants_grad(at::ArrayRef<Tensor> tensors) {
  return torch::autograd::compute_requires_grad(tensors);
}

// Whether a transform of torch.func differentiates.
bool is_transformed(DispatchKeySet keys) {
  return keys.has(DispatchKey::FuncTorchDynamicLayerBackMode);
}

class RowsCompute final : public RowKernel<0, 1> {
 public:
  using RowKernel::RowKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    Tensor loss = compute_rows(call(*stack), operands(*stack), false, nullptr).loss;
    torch::jit::drop(*stack, kLength);
    stack->emplace_back(std::move(loss));
  }
};

class RowsAutograd final : public RowKernel<0, 1> {
 public:
  using RowKernel::RowKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const RowOperands operands = this->operands(*stack);
    const auto tensors = operands.tensors();
    const bool recorded = wants_grad(tensors);
    const bool others = recorded && wants_grad(at::ArrayRef<Tensor>(tensors).slice(1));
    if (others || (recorded && is_transformed(keys)) || have_tangents(tensors))
      return compose("_reference", *stack);
    if (!recorded) return redispatch(op, keys, *stack);

    RowCall call = this->call(*stack);
    call.site = arguments(*stack)[kLength - 1].toInt();
    const auto node = make_node<RowsBackward>(call, {operands.input});
    node->save(operands);
    Tensor loss;
    // Without kernels the operator is called below, where they are loaded.
    if (runs_directly(keys) && has_kernels(loss_, operands.input.device())) {
      torch::jit::drop(*stack, kLength);
      const at::AutoDispatchBelowADInplaceOrView guard;
      // Hooks on saved tensors mean to keep what backward needs elsewhere, or to compute it again:
      // the operands will do.
      const bool ahead = call.reduction != Reduction::none &&
                         at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
      loss = node->compute(operands, ahead);
    } else {
      redispatch(op, keys, *stack);
      loss = torch::jit::pop(*stack).toTensor();
    }
    torch::autograd::set_history(loss, node);
    stack->emplace_back(std::move(loss));
  }
};

class BackwardCompute final : public RowKernel<1, 0> {
 public:
  using RowKernel::RowKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const Tensor grad_output = arguments(*stack)[0].toTensor();
    Tensor gradient = compute_row_gradient(call(*stack), grad_output, operands(*stack));
    torch::jit::drop(*stack, kLength);
    stack->emplace_back(std::move(gradient));
  }
};

class BackwardAutograd final : public RowKernel<1, 0> {
 public:
  using RowKernel::RowKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    auto tensors = operands(*stack).tensors();
    tensors.push_back(arguments(*stack)[0].toTensor());
    if (wants_grad(tensors) || have_tangents(tensors))
      compose("_backward_reference", *stack);
    else
      redispatch(op, keys, *stack);
  }
};

class WithGradCompute final : public RowKernel<0, 0> {
 public:
  using RowKernel::RowKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const RowOperands operands = this->operands(*stack);
    RowResult result = compute_rows(call(*stack), operands, true, nullptr);
    torch::jit::drop(*stack, kLength);
    stack->emplace_back(std::move(result.loss));
    stack->emplace_back(as_input(result.gradient, operands.input));
  }
};

class InPlaceCompute final : public RowKernel<0, 0> {
 public:
  using RowKernel::RowKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    Tensor loss = compute_rows_in_place(call(*stack), operands(*stack));
    torch::jit::drop(*stack, kLength);
    stack->emplace_back(std::move(loss));
  }
};

// They return a gradient and have none: where one would be asked for, they say so.
template <bool kInPlace>
class WithGradAutograd final : public RowKernel<0, 0> {
 public:
  using RowKernel<0, 0>::RowKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const RowOperands operands = this->operands(*stack);
    const auto tensors = operands.tensors();
    TORCH_CHECK_NOT_IMPLEMENTED(
        !(is_transformed(keys) && wants_grad(tensors)) && !have_tangents(tensors), this->loss_.name,
        "_with_grad returns the gradient itself and cannot be differentiated; call ",
        this->loss_.name, " instead");
    TORCH_CHECK(!kInPlace || !(at::GradMode::is_enabled() && operands.input.requires_grad()),
                this->loss_.name,
                "_with_grad: the gradient cannot be written over an input that requires grad; call "
                "it under torch.no_grad()");
    this->redispatch(op, keys, *stack);
    if (kInPlace && !operands.input.is_inference())
      torch::autograd::impl::bump_version(operands.input);
  }
};

template <c10::DeviceType device>
class RowsAutocast final : public c10::OperatorKernel {
 public:
  explicit RowsAutocast(RowLossDefinition&) {}

  void operator()(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
    call_in_float32(op, kRowOperands, device, *stack);
  }
};

template <c10::DeviceType device>
void implement_autocast(torch::Library& library, DispatchKey key, RowLossDefinition& loss) {
  implement<RowsAutocast<device>>(library, loss.name, key, loss);
  implement<RowsAutocast<device>>(library, loss.name + "_with_grad", key, loss);
}

}  // namespace

void implement_row_loss(RowLossDefinition& loss) {
  torch::Library& library = implementations("losscli");
  for (const auto key : kAutogradKeys) {
    implement<RowsAutograd>(library, loss.name, key, loss);
    implement<BackwardAutograd>(library, loss.name + "_backward", key, loss);
    implement<WithGradAutograd<false>>(library, loss.name + "_with_grad", key, loss);
    implement<WithGradAutograd<true>>(library, loss.name + "_with_grad_", key, loss);
  }
  implement_autocast<c10::DeviceType::CPU>(library, DispatchKey::AutocastCPU, loss);
  implement_autocast<c10::DeviceType::CUDA>(library, DispatchKey::AutocastCUDA, loss);
}

void implement_row_kernels(RowLossDefinition& loss, DeviceKind device) {
  const auto key = device == DeviceKind::cpu ? DispatchKey::CPU : DispatchKey::CUDA;
  torch::Library& library = implementations("losscli");
  implement<RowsCompute>(library, loss.name, key, loss);
  implement<BackwardCompute>(library, loss.name + "_backward", key, loss);
  implement<WithGradCompute>(library, loss.name + "_with_grad", key, loss);
  implement<InPlaceCompute>(library, loss.name + "_with_grad_", key, loss);
}

}  // namespace losscli
