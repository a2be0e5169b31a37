// What the operators do on each dispatch key. Python defines them from the losses' specifications
// (losscli/extension/operators.py); this attaches the implementations:
//
//   losscli::NAME(operands..., reduction, parameters..., site) -> loss
//   losscli::NAME_with_grad(operands..., reduction, parameters..., grad_output, factor)
//     -> (loss, gradient of the first operand)
//   losscli::NAME_backward(grad_output, operands..., reduction, parameters..., wanted)
//     -> gradients, an empty tensor for one that is not wanted
//   losscli::NAME_double_backward(vectors..., grad_output, operands..., reduction, parameters...)
//     -> (grad_output's gradient, operands' gradients...)
//   losscli_bench::NAME(operands..., reduction, parameters..., strategy) -> loss
#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "torch/implement.h"
#include "torch/nodes.h"
#include "torch/tangents.h"

namespace losscli {
namespace {

using at::Tensor;

// A boxed kernel for one loss.
class LossKernel : public c10::OperatorKernel {
 public:
  explicit LossKernel(LossDefinition& loss) : loss_(loss) {}

 protected:
  const c10::IValue* arguments(const Stack& stack, size_t length) const {
    return stack.data() + (stack.size() - length);
  }

  LossDefinition& loss_;
};

// losscli::NAME and losscli_bench::NAME: they differ in the last argument.
template <bool kStrategies>
class LossOperator : public LossKernel {
 public:
  using LossKernel::LossKernel;

 protected:
  size_t length() const { return loss_.operands() + call_length(loss_) + 1; }

  LossCall take(const Stack& stack) const {
    const auto first = arguments(stack, length());
    LossCall call = take_call(loss_, first + loss_.operands());
    const c10::IValue& last = first[length() - 1];
    if constexpr (kStrategies)
      call.strategy = parse_strategy(last.toStringView());
    else
      call.site = last.toInt();
    return call;
  }
};

template <bool kStrategies>
class LossCompute final : public LossOperator<kStrategies> {
 public:
  using LossOperator<kStrategies>::LossOperator;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const LossCall call = this->take(*stack);
    const Tensors operands =
        take_tensors(this->arguments(*stack, this->length()), this->loss_.operands());
    Tensor loss = compute_loss(call, operands, {}, Tensor(), nullptr).loss;
    torch::jit::drop(*stack, this->length());
    stack->emplace_back(std::move(loss));
  }
};

template <bool kStrategies>
class LossAutograd final : public LossOperator<kStrategies> {
 public:
  using LossOperator<kStrategies>::LossOperator;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const LossCall call = this->take(*stack);
    const Tensors operands =
        take_tensors(this->arguments(*stack, this->length()), this->loss_.operands());
    const bool recorded = torch::autograd::compute_requires_grad(at::TensorList(operands));
    // Without kernels the operator is called below, where they are loaded.
    const bool direct = recorded && runs_directly(keys) && has_kernels(call, operands[0].device());
    if (!direct) {
      at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    } else {
      torch::jit::drop(*stack, this->length());
    }
    if (recorded) record(call, operands, direct, *stack);
    if (have_tangents(operands)) set_loss_tangent(call, operands, stack->back().toTensor());
  }

 private:
  // Gives the loss, which is on the stack unless it is computed here, a node of its own.
  static void record(const LossCall& call, const Tensors& operands, bool direct, Stack& stack) {
    const auto node = make_node<LossBackward>(call, operands);
    for (const Tensor& operand : operands) node->operands.push_back(SavedVariable(operand, false));
    node->ahead.seen.remember(operands);
    Tensor loss;
    if (direct) {
      at::AutoDispatchBelowADInplaceOrView guard;
      // The incoming gradient of a single loss is most often what it was in the last step; that of
      // a tensor is anything. Hooks on saved tensors mean to keep what backward needs elsewhere, or
      // to compute it again: the operands will do.
      const bool ahead = call.reduction != Reduction::none &&
                         at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
      Wanted wanted{};
      for (size_t k = 0; k < operands.size(); ++k) wanted[k] = ahead && operands[k].requires_grad();
      loss = node->ahead.compute(call, operands, wanted);
    } else {
      loss = torch::jit::pop(stack).toTensor();
    }
    torch::autograd::set_history(loss, node);
    stack.emplace_back(std::move(loss));
  }
};

class WithGrad : public LossKernel {
 public:
  using LossKernel::LossKernel;

 protected:
  size_t length() const { return loss_.operands() + call_length(loss_) + 2; }
};

class WithGradCompute final : public WithGrad {
 public:
  using WithGrad::WithGrad;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const auto first = arguments(*stack, length());
    const LossCall call = take_call(loss_, first + loss_.operands());
    const Tensors operands = take_tensors(first, loss_.operands());
    const c10::IValue& given = first[length() - 2];
    auto [loss, gradient] = compute(call, operands, given.isNone() ? Tensor() : given.toTensor(),
                                    first[length() - 1].toDouble());
    torch::jit::drop(*stack, length());
    stack->emplace_back(std::move(loss));
    stack->emplace_back(std::move(gradient));
  }

 private:
  static std::pair<Tensor, Tensor> compute(const LossCall& call, const Tensors& operands,
                                           Tensor grad_output, double factor) {
    TORCH_CHECK_TYPE(operands[0].is_floating_point(), call.name(), ": an ",
                     call.loss->operand_names[0], " of ", operands[0].scalar_type(),
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
        compute_loss(call, operands, wanted, one_launch ? grad_output : Tensor(), nullptr);
    if (result.gradients[0].defined() && result.gradients[0].numel() > 0)
      return {result.loss, as_operand(result.gradients[0], operands[0])};
    // An operand that is repeated, an incoming gradient for each element, or nothing to compute.
    if (!grad_output.defined()) grad_output = at::ones({}, result.loss.options());
    wanted[0] = true;
    return {result.loss,
            compute_gradients(call, grad_output.expand(result.loss.sizes()), operands, wanted)[0]};
  }
};

// It returns a gradient and has none: where one would be asked for, it says so. Tangents it has.
class WithGradAutograd final : public WithGrad {
 public:
  using WithGrad::WithGrad;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const auto first = arguments(*stack, length());
    const LossCall call = take_call(loss_, first + loss_.operands());
    const Tensors operands = take_tensors(first, loss_.operands());
    const c10::IValue& given = first[length() - 2];
    Tensor grad_output = given.isNone() ? Tensor() : given.toTensor();
    const double factor = first[length() - 1].toDouble();
    Tensors tensors = operands;
    if (grad_output.defined()) tensors.push_back(grad_output);
    TORCH_CHECK_NOT_IMPLEMENTED(
        !keys.has(c10::DispatchKey::FuncTorchDynamicLayerBackMode) ||
            !torch::autograd::compute_requires_grad(at::TensorList(tensors)),
        loss_.name,
        "_loss_with_grad returns the gradient itself and cannot be differentiated in reverse mode, "
        "as torch.func.grad would; call ",
        loss_.name, "_loss instead");
    const bool dual = have_tangents(tensors);
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
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

class Backward : public LossKernel {
 public:
  using LossKernel::LossKernel;

 protected:
  size_t length() const { return 1 + loss_.operands() + call_length(loss_) + 1; }
};

class BackwardCompute final : public Backward {
 public:
  using Backward::Backward;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const auto first = arguments(*stack, length());
    const LossCall call = take_call(loss_, first + 1 + loss_.operands());
    const Tensors operands = take_tensors(first + 1, loss_.operands());
    Tensors gradients =
        compute_gradients(call, first[0].toTensor(), operands, take_wanted(first[length() - 1]));
    torch::jit::drop(*stack, length());
    for (size_t k = 0; k < operands.size(); ++k)
      stack->emplace_back(gradients[k].defined() ? std::move(gradients[k])
                                                 : at::empty({0}, operands[k].options()));
  }
};

class BackwardAutograd final : public Backward {
 public:
  using Backward::Backward;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const auto first = arguments(*stack, length());
    const LossCall call = take_call(loss_, first + 1 + loss_.operands());
    const Tensors tensors = take_tensors(first, 1 + loss_.operands());
    const Wanted wanted = take_wanted(first[length() - 1]);
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    if (torch::autograd::compute_requires_grad(at::TensorList(tensors)))
      record(call, tensors, wanted, *stack);
    if (have_tangents(tensors)) {
      const size_t count = loss_.operands();
      const Tensors gradients = take_tensors(arguments(*stack, count), count);
      set_gradient_tangents(call, tensors[0], at::ArrayRef<Tensor>(tensors).slice(1), wanted,
                            gradients);
    }
  }

 private:
  void record(const LossCall& call, const Tensors& tensors, const Wanted& wanted,
              const Stack& stack) const {
    const auto node = make_node<GradientsBackward>(call, tensors);
    node->grad_output = SavedVariable(tensors[0], false);
    node->wanted = wanted;
    const size_t count = loss_.operands();
    for (size_t k = 0; k < count; ++k) {
      node->operands.push_back(SavedVariable(tensors[1 + k], false));
      // One that was not asked for has its number in the node, but no history.
      const Tensor gradient = wanted[k] ? (stack.end() - count)[k].toTensor() : Tensor();
      torch::autograd::set_history(gradient, node);
    }
  }
};

class DoubleBackward : public LossKernel {
 public:
  using LossKernel::LossKernel;

 protected:
  size_t length() const { return 2 * loss_.operands() + 1 + call_length(loss_); }
};

class DoubleBackwardCompute final : public DoubleBackward {
 public:
  using DoubleBackward::DoubleBackward;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const size_t count = loss_.operands();
    const auto first = arguments(*stack, length());
    const LossCall call = take_call(loss_, first + 2 * count + 1);
    auto gradients =
        compute_second_derivatives(call, take_tensors(first, count), first[count].toTensor(),
                                   take_tensors(first + count + 1, count));
    torch::jit::drop(*stack, length());
    for (Tensor& gradient : gradients) stack->emplace_back(std::move(gradient));
  }
};

class DoubleBackwardAutograd final : public DoubleBackward {
 public:
  using DoubleBackward::DoubleBackward;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const size_t count = loss_.operands();
    const auto first = arguments(*stack, length());
    const LossCall call = take_call(loss_, first + 2 * count + 1);
    const Tensors vectors = take_tensors(first, count);
    const Tensor grad_output = first[count].toTensor();
    const Tensors operands = take_tensors(first + count + 1, count);
    Tensors tensors = vectors;
    tensors.push_back(grad_output);
    tensors.append(operands.begin(), operands.end());
    TORCH_CHECK_NOT_IMPLEMENTED(!have_tangents(tensors), call.name(),
                                ": third derivatives are not supported");
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    if (!torch::autograd::compute_requires_grad(at::TensorList(tensors))) return;
    const auto node = make_node<SecondDerivativesBackward>(call, tensors);
    node->grad_output = SavedVariable(grad_output, false);
    for (size_t k = 0; k < count; ++k) {
      node->vectors.push_back(SavedVariable(vectors[k], false));
      node->operands.push_back(SavedVariable(operands[k], false));
    }
    for (size_t k = 0; k <= count; ++k)
      torch::autograd::set_history((stack->end() - count - 1)[k].toTensor(), node);
  }
};

template <c10::DeviceType device>
class LossAutocast final : public LossKernel {
 public:
  using LossKernel::LossKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet, Stack* stack) {
    call_in_float32(op, loss_.operands(), device, *stack);
  }
};

}  // namespace

void implement_loss(LossDefinition& loss) {
  torch::Library& library = implementations("losscli");
  for (const auto key : kAutogradKeys) {
    implement<LossAutograd<false>>(library, loss.name, key, loss);
    implement<WithGradAutograd>(library, loss.name + "_with_grad", key, loss);
    implement<BackwardAutograd>(library, loss.name + "_backward", key, loss);
    implement<DoubleBackwardAutograd>(library, loss.name + "_double_backward", key, loss);
  }
  for (const char* suffix : {"", "_with_grad"}) {
    using c10::DeviceType;
    implement<LossAutocast<DeviceType::CPU>>(library, loss.name + suffix,
                                             c10::DispatchKey::AutocastCPU, loss);
    implement<LossAutocast<DeviceType::CUDA>>(library, loss.name + suffix,
                                              c10::DispatchKey::AutocastCUDA, loss);
  }
  torch::Library& bench = implementations("losscli_bench");
  for (const auto key : kAutogradKeys) implement<LossAutograd<true>>(bench, loss.name, key, loss);
}

void implement_kernels(LossDefinition& loss, DeviceKind device, bool strategies) {
  const auto key = device == DeviceKind::cpu ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  if (strategies) {
    implement<LossCompute<true>>(implementations("losscli_bench"), loss.name, key, loss);
    return;
  }
  torch::Library& library = implementations("losscli");
  implement<LossCompute<false>>(library, loss.name, key, loss);
  implement<WithGradCompute>(library, loss.name + "_with_grad", key, loss);
  implement<BackwardCompute>(library, loss.name + "_backward", key, loss);
  implement<DoubleBackwardCompute>(library, loss.name + "_double_backward", key, loss);
}

}  // namespace losscli
