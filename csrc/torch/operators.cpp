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
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "torch/boxed.h"
#include "torch/tangents.h"

namespace losscli {
namespace {

using at::Tensor;

// losscli::NAME and losscli_bench::NAME: they differ in the last argument.
template <bool kStrategies>
class LossOperator : public CallKernel<LossCall, 0, 1> {
 public:
  using CallKernel::CallKernel;

 protected:
  LossCall take(const Stack& stack) const {
    LossCall call = this->call(stack);
    if constexpr (kStrategies)
      call.strategy = parse_strategy(last(stack).toStringView());
    else
      call.site = last(stack).toInt();
    return call;
  }
};

template <bool kStrategies>
class LossCompute final : public LossOperator<kStrategies> {
 public:
  using LossOperator<kStrategies>::LossOperator;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    this->give_back(*stack,
                    compute_loss(this->take(*stack), this->operands(*stack), {}, nullptr).loss);
  }
};

template <bool kStrategies>
class LossAutograd final : public LossOperator<kStrategies> {
 public:
  using LossOperator<kStrategies>::LossOperator;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const LossCall call = this->take(*stack);
    const Tensors operands = this->operands(*stack);
    const bool recorded = wants_grad(operands);
    const bool direct = recorded && is_direct(call, keys, operands);
    if (direct)
      this->give_back(*stack);
    else
      this->redispatch(op, keys, *stack);
    if (recorded) record(call, operands, direct, *stack);
    if (have_tangents(operands)) set_loss_tangent(call, operands, stack->back().toTensor());
  }
};

class WithGrad : public CallKernel<LossCall, 0, 2> {
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
        compute_loss(call, operands, wanted, nullptr, one_launch ? grad_output : Tensor());
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
    const LossCall call = this->call(*stack);
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

class BackwardAutograd final : public CallKernel<LossCall, 1, 1> {
 public:
  using CallKernel::CallKernel;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const LossCall call = this->call(*stack);
    const Tensors tensors = take_tensors(arguments(*stack), 1 + loss_.operands());
    const Wanted wanted = take_wanted(last(*stack));
    redispatch(op, keys, *stack);
    if (wants_grad(tensors)) record(call, tensors, wanted, *stack);
    if (have_tangents(tensors)) {
      const size_t count = loss_.operands();
      const Tensors gradients = take_tensors(stack->data() + (stack->size() - count), count);
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

class DoubleBackward : public c10::OperatorKernel {
 public:
  explicit DoubleBackward(LossDefinition& loss) : loss_(loss) {}

 protected:
  struct Given {
    LossCall call;
    Tensors vectors;
    Tensor grad_output;
    Tensors operands;
  };

  size_t length() const { return 2 * loss_.operands() + 1 + call_length(loss_); }
  Given take(const Stack& stack) const {
    const size_t count = loss_.operands();
    const c10::IValue* const first = stack.data() + (stack.size() - length());
    return {take_call<LossCall>(loss_, first + 2 * count + 1), take_tensors(first, count),
            first[count].toTensor(), take_tensors(first + count + 1, count)};
  }

  LossDefinition& loss_;
};

class DoubleBackwardCompute final : public DoubleBackward {
 public:
  using DoubleBackward::DoubleBackward;

  void operator()(const OperatorHandle&, DispatchKeySet, Stack* stack) {
    const Given given = take(*stack);
    auto gradients =
        compute_second_derivatives(given.call, given.vectors, given.grad_output, given.operands);
    torch::jit::drop(*stack, length());
    for (Tensor& gradient : gradients) stack->emplace_back(std::move(gradient));
  }
};

class DoubleBackwardAutograd final : public DoubleBackward {
 public:
  using DoubleBackward::DoubleBackward;

  void operator()(const OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
    const Given given = take(*stack);
    Tensors tensors = given.vectors;
    tensors.push_back(given.grad_output);
    tensors.append(given.operands.begin(), given.operands.end());
    TORCH_CHECK_NOT_IMPLEMENTED(!have_tangents(tensors), given.call.name(),
                                ": third derivatives are not supported");
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    if (!wants_grad(tensors)) return;
    const auto node = make_node<SecondDerivativesBackward>(given.call, tensors);
    node->grad_output = SavedVariable(given.grad_output, false);
    const size_t count = loss_.operands();
    for (size_t k = 0; k < count; ++k) {
      node->vectors.push_back(SavedVariable(given.vectors[k], false));
      node->operands.push_back(SavedVariable(given.operands[k], false));
    }
    for (size_t k = 0; k <= count; ++k)
      torch::autograd::set_history((stack->end() - count - 1)[k].toTensor(), node);
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
  implement_autocast(library, loss);
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
  implement<BackwardCompute<LossCall>>(library, loss.name + "_backward", key, loss);
  implement<DoubleBackwardCompute>(library, loss.name + "_double_backward", key, loss);
}

}  // namespace losscli
