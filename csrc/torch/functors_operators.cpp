// What the operators of a functor over rows do on each dispatch key. Python defines them
// (losscli/extension/functor_operators.py); this attaches the implementations:
//
//   losscli::NAME(operands..., reduction, parameters..., site) -> loss
//   losscli::NAME_backward(grad_output, operands..., reduction, parameters..., wanted)
//     -> the gradient of each operand that is rows; an empty one where it is not wanted
//   losscli::NAME_with_grad(operands..., reduction, parameters...) -> (loss, first gradient)
//
// The kernels have the first derivatives. Where more is asked for, a second derivative, forward
// mode or a transform, the loss is composed of ATen's operators, which have all of that:
// losscli::NAME_reference and NAME_backward_reference.
#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "torch/functors_nodes.h"
#include "torch/functors_stack.h"
#include "torch/implement.h"
#include "torch/rows.h"
#include "torch/tangents.h"

namespace losscli {
namespace {

using at::Tensor;
using c10::DispatchKey;

// A boxed kernel for one functor, whose operands come after `kBefore` other arguments and whose
// parameters are followed by `kAfter` others.
template <size_t kBefore, size_t kAfter>
class FunctorKernel : public c10::OperatorKernel {
 public:
  explicit FunctorKernel(FunctorLoss& loss) : loss_(loss) {}

 protected:
  size_t length() const { return kBefore + functor_length(loss_) + kAfter; }
  const c10::IValue* arguments(const Stack& stack) const {
    return stack.data() + (stack.size() - length());
  }
  FunctorOperands operands(const Stack& stack) const {
    return take_functor_operands(loss_, arguments(stack) + kBefore);
  }
  FunctorCall call(const Stack& stack) const {
    return take_functor_call(loss_, arguments(stack) + kBefore + loss_.operands());
  }
  const c10::IValue& last(const Stack& stack) const { return arguments(stack)[length() - 1]; }

  static void redispatch(const OperatorHandle& op, DispatchKeySet keys, Stack& stack) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, &stack);
  }

  FunctorLoss& loss_;
};

bool wants_grad(const FunctorOperands& operands) {
  return torch::autograd::compute_requires_grad(at::TensorList(operands));
}

// Whether a transform of torch.func differentiates.
bool is_transformed(DispatchKeySet keys) {
  return keys.has(DispatchKey::FuncTorchDynamicLayerBackMode);
}

class FunctorCompute final : public FunctorKernel<0, 1> {
 public:
  using FunctorKernel::FunctorKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    Tensor loss = compute_functor(call(*stack), operands(*stack), {}, nullptr).loss;
    torch::jit::drop(*stack, length());
    stack->emplace_back(std::move(loss));
  }
};

class FunctorAutograd final : public FunctorKernel<0, 1> {
 public:
  using FunctorKernel::FunctorKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const FunctorOperands operands = this->operands(*stack);
    const FunctorOperands there = defined(operands);
    const bool recorded = wants_grad(there);
    if ((recorded && is_transformed(keys)) || have_tangents(there)) {
      torch::jit::drop(*stack, 1);
      return call_functor_operator(loss_, "_reference", *stack);
    }
    if (!recorded) return redispatch(op, keys, *stack);

    FunctorCall call = this->call(*stack);
    call.site = last(*stack).toInt();
    const auto node =
        make_node<FunctorBackward>(call, at::ArrayRef<Tensor>(operands).slice(0, loss_.rows()));
    node->save(operands);
    Tensor loss;
    // Without kernels the operator is called below, where they are loaded.
    if (runs_directly(keys) && has_kernels(loss_, operands[0].device())) {
      torch::jit::drop(*stack, length());
      const at::AutoDispatchBelowADInplaceOrView guard;
      // Hooks on saved tensors mean to keep what backward needs elsewhere, or to compute it again:
      // the operands will do.
      const bool ahead = call.reduction != Reduction::none &&
                         at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
      FunctorWanted wanted{};
      for (size_t k = 0; k < loss_.rows(); ++k) wanted[k] = ahead && operands[k].requires_grad();
      loss = node->compute(operands, wanted);
    } else {
      redispatch(op, keys, *stack);
      loss = torch::jit::pop(*stack).toTensor();
    }
    torch::autograd::set_history(loss, node);
    stack->emplace_back(std::move(loss));
  }
};

class FunctorBackwardCompute final : public FunctorKernel<1, 1> {
 public:
  using FunctorKernel::FunctorKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const Tensor grad_output = arguments(*stack)[0].toTensor();
    const FunctorGradients gradients = compute_functor_gradients(
        call(*stack), grad_output, operands(*stack), take_functor_wanted(last(*stack)));
    const auto options = arguments(*stack)[1].toTensor().options();
    torch::jit::drop(*stack, length());
    for (size_t k = 0; k < loss_.rows(); ++k)
      stack->emplace_back(gradients[k].defined() ? gradients[k] : at::empty({0}, options));
  }
};

class FunctorBackwardAutograd final : public FunctorKernel<1, 1> {
 public:
  using FunctorKernel::FunctorKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    FunctorOperands there = defined(operands(*stack));
    there.push_back(arguments(*stack)[0].toTensor());
    if (wants_grad(there) || have_tangents(there))
      call_functor_operator(loss_, "_backward_reference", *stack);
    else
      redispatch(op, keys, *stack);
  }
};

class FunctorWithGradCompute final : public FunctorKernel<0, 0> {
 public:
  using FunctorKernel::FunctorKernel;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const FunctorOperands operands = this->operands(*stack);
    FunctorResult result = compute_functor(call(*stack), operands, {true}, nullptr);
    torch::jit::drop(*stack, length());
    stack->emplace_back(std::move(result.loss));
    stack->emplace_back(as_input(result.gradients[0], operands[0]));
  }
};

// It returns a gradient and has none: where one would be asked for, it says so.
class FunctorWithGradAutograd final : public FunctorKernel<0, 0> {
 public:
  using FunctorKernel::FunctorKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const FunctorOperands there = defined(operands(*stack));
    TORCH_CHECK_NOT_IMPLEMENTED(
        !(is_transformed(keys) && wants_grad(there)) && !have_tangents(there), loss_.name,
        "_with_grad returns the gradient itself and cannot be differentiated; call ", loss_.name,
        " instead");
    redispatch(op, keys, *stack);
  }
};

template <c10::DeviceType device>
class FunctorAutocast final : public c10::OperatorKernel {
 public:
  explicit FunctorAutocast(FunctorLoss& loss) : loss_(loss) {}

  void operator()(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
    call_in_float32(op, loss_.operands(), device, *stack);
  }

 private:
  FunctorLoss& loss_;
};

template <c10::DeviceType device>
void implement_autocast(torch::Library& library, DispatchKey key, FunctorLoss& loss) {
  implement<FunctorAutocast<device>>(library, loss.name, key, loss);
  implement<FunctorAutocast<device>>(library, loss.name + "_with_grad", key, loss);
}

}  // namespace

void implement_functor_loss(FunctorLoss& loss) {
  torch::Library& library = implementations("losscli");
  for (const auto key : kAutogradKeys) {
    implement<FunctorAutograd>(library, loss.name, key, loss);
    implement<FunctorBackwardAutograd>(library, loss.name + "_backward", key, loss);
    implement<FunctorWithGradAutograd>(library, loss.name + "_with_grad", key, loss);
  }
  implement_autocast<c10::DeviceType::CPU>(library, DispatchKey::AutocastCPU, loss);
  implement_autocast<c10::DeviceType::CUDA>(library, DispatchKey::AutocastCUDA, loss);
}

void implement_functor_kernels(FunctorLoss& loss, DeviceKind device) {
  const auto key = device == DeviceKind::cpu ? DispatchKey::CPU : DispatchKey::CUDA;
  torch::Library& library = implementations("losscli");
  implement<FunctorCompute>(library, loss.name, key, loss);
  implement<FunctorBackwardCompute>(library, loss.name + "_backward", key, loss);
  implement<FunctorWithGradCompute>(library, loss.name + "_with_grad", key, loss);
}

}  // namespace losscli
