#include "torch/compute.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "torch/checks.h"
#include "torch/launch.h"
#include "torch/layout.h"

namespace losscli {
namespace {

using at::Tensor;

const Attached<Kernels>& table_of(const LossDefinition& loss, const Call& call) {
  return call.strategy == Strategy::single_pass ? loss.kernels : loss.strategies;
}

const Kernels& kernels_for(const LossDefinition& loss, const Call& call, const at::Device& device) {
  return kernels_in(table_of(loss, call), loss.name, device);
}

// "input and target", or whatever `word` makes of each operand.
template <typename Word>
std::string list(size_t operands, Word word) {
  std::string text;
  for (size_t k = 0; k < operands; ++k)
    text += c10::str(k == 0 ? "" : k + 1 == operands ? " and " : ", ", word(k));
  return text;
}

template <typename Arguments>
void set_call(Arguments& arguments, const Call& call, at::ScalarType type, int64_t size) {
  arguments.dtype = dtype_of(type);
  std::copy_n(call.parameters.begin(), kMostParameters, arguments.parameters);
  arguments.scale = call.reduction == Reduction::mean ? 1.0 / static_cast<double>(size) : 1.0;
}

// The operands of a call in the form that kernels take, and what keeps their memory alive: copies
// of them where they have more dimensions than kernels walk.
class Walk {
 public:
  Walk(const Call& call, TensorList operands, at::ScalarType type)
      : layout(operands, call.loss->operand_names.data()),
        type(type),
        call_(call),
        tensors_(operands.begin(), operands.end()) {}

  // For an upstream gradient, if it is defined. False where the dimensions that repeat `shared` are
  // too many, `kept` the number of its own.
  template <typename Arguments>
  bool fill(Arguments& arguments, const Tensor& grad_output, const Tensor* shared = nullptr,
            int32_t* kept = nullptr) {
    set_call(arguments, call_, type, layout.size());
    const size_t count = tensors_.size();
    if (grad_output.defined()) {
      if (call_.reduction == Reduction::none) {
        tensors_.push_back(grad_output);
      } else {
        arguments.grad_output.data = grad_output.const_data_ptr();
        arguments.grad_output.dtype = dtype_of(grad_output.scalar_type());
      }
    }
    std::array<Operand, kMostOperands + 1> forms;
    const auto collapse = [&] {
      return layout.collapse(tensors_, arguments.space, forms.data(), shared, kept);
    };
    if (!collapse()) {
      for (Tensor& tensor : tensors_) {
        if (shared && tensor.sizes() == shared->sizes()) continue;
        Tensor copy = layout.empty(layout.shape(), tensor.options());
        tensor = copy.copy_(tensor);
      }
      if (!collapse()) return false;
    }
    std::copy_n(forms.begin(), count, arguments.operands);
    if (tensors_.size() > count) arguments.grad_output = forms[count];
    return true;
  }

  const Layout layout;
  const at::ScalarType type;

 private:
  const Call& call_;
  Tensors tensors_;
};

void run(const LossDefinition& loss, const Call& call, const ElementwiseArguments& arguments,
         TensorList operands) {
  const Kernels& kernels = kernels_for(loss, call, operands[0].device());
  const Status status =
      launch(operands[0], kernels.elementwise_needs, kernels.elementwise, arguments);
  check_status(status, call, operands);
}

// The gradient of an operand that several elements of the loss share.
Tensor shared_gradient(const LossDefinition& loss, const Call& call, const Tensor& grad_output,
                       TensorList operands, int32_t shared) {
  const Tensor& operand = operands[shared];
  Walk walk(call, operands, loss.type_of(operands));
  SharedGradientArguments arguments;
  arguments.shared = shared;
  arguments.repeats_fastest = walk.layout.repeats_fastest(operand);
  TORCH_CHECK_NOT_IMPLEMENTED(
      walk.fill(arguments, grad_output, &operand, &arguments.kept), call.name(),
      ": the gradient of an operand that is repeated along so many dimensions apart (",
      operand.sizes(), " in ", walk.layout.shape(), ") is not supported; expand it yourself");
  Tensor gradient = walk.layout.empty(operand.sizes(), operand.options());
  arguments.gradient = gradient.mutable_data_ptr();
  const Kernels& kernels = kernels_for(loss, call, operand.device());
  const Status status =
      launch(operand, kernels.shared_gradient_needs, kernels.shared_gradient, arguments);
  check_status(status, call, operands);
  return gradient;
}

bool is_in_domain(double value, const Parameter& parameter) {
  if (!std::isfinite(value)) return false;
  if (parameter.is_switch) return value == 0 || value == 1;
  if (parameter.open) return parameter.minimum < value && value < parameter.maximum;
  return parameter.minimum <= value && value <= parameter.maximum;
}

std::string domain_of(const Parameter& parameter) {
  if (parameter.is_switch) return "0 or 1";
  std::string bounds;
  if (std::isfinite(parameter.minimum))
    bounds = c10::str(parameter.open ? "above " : "at least ", parameter.minimum);
  if (std::isfinite(parameter.maximum))
    bounds = c10::str(bounds, bounds.empty() ? "" : " and ", parameter.open ? "below " : "at most ",
                      parameter.maximum);
  return bounds.empty() ? "a finite number" : bounds;
}

// Returns the dtype that operands are promoted to.
at::ScalarType check_call(const LossDefinition& loss, const Call& call, TensorList operands) {
  for (size_t k = 0; k < operands.size(); ++k) check_given(call, operands, k);
  const auto type = loss.type_of(operands);
  TORCH_CHECK_TYPE(
      is_computable(type), call.name(), ": ",
      list(operands.size(), [&](size_t k) { return loss.operand_names[k]; }),
      " must be float32, float64, float16 or bfloat16, but are ",
      list(operands.size(), [&](size_t k) { return c10::toString(operands[k].scalar_type()); }),
      conversion(type));
  check_places(call, operands);
  const Kernels& kernels = kernels_for(loss, call, operands[0].device());
  for (int32_t p = 0; p < kernels.parameters; ++p) {
    const Parameter& parameter = kernels.parameter[p];
    const double value = call.parameters[p];
    TORCH_CHECK_VALUE(is_in_domain(value, parameter), call.name(), ": ", parameter.name,
                      " must be ", domain_of(parameter), ", but is ", value);
  }
  if (call.strategy == Strategy::atomic)
    at::globalContext().alertNotDeterministic("the reduction strategy 'atomic' of losscli");
  return type;
}

}  // namespace

Tensor as_operand(const Tensor& gradient, const Tensor& operand) {
  if (!gradient.defined() || gradient.dim() == operand.dim()) return gradient;
  return gradient.as_strided(operand.sizes(),
                             gradient.strides().slice(gradient.dim() - operand.dim()));
}

Reduction parse_reduction(std::string_view name) {
  const auto* const found = std::find(std::begin(kReductions), std::end(kReductions), name);
  TORCH_CHECK_VALUE(found != std::end(kReductions),
                    "reduction must be 'none', 'mean' or 'sum', but is '", name, "'");
  return static_cast<Reduction>(found - kReductions);
}

Strategy parse_strategy(std::string_view name) {
  if (name == "atomic") return Strategy::atomic;
  if (name == "two_pass") return Strategy::two_pass;
  if (name == "tree") return Strategy::tree;
  if (name == "torch_sum") return Strategy::torch_sum;
  TORCH_CHECK_VALUE(false, "strategy must be 'atomic', 'two_pass', 'tree' or 'torch_sum', but is '",
                    name, "'");
}

bool LossDefinition::has_kernels(const Call& call, const at::Device& device) const {
  return table_of(*this, call).on(device) != nullptr;
}

at::ScalarType LossDefinition::type_of(TensorList operands) const {
  if (operands.size() == 2) return at::result_type(operands[0], operands[1]);
  return at::native::result_type(operands);
}

bool LossDefinition::pays_ahead(const Call& call, TensorList operands) const {
  const int64_t least = kernels_for(*this, call, operands[0].device()).least_ahead;
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Tensor& operand) { return operand.numel() >= least; });
}

LossAndGradients LossDefinition::compute_loss(const Call& call, TensorList operands,
                                              const Wanted& wanted, Expectation* expectation,
                                              const Tensor& grad_output) const {
  Walk walk(call, operands, check_call(*this, call, operands));
  const Layout& layout = walk.layout;
  if (grad_output.defined())
    check_incoming(call, layout.shape(), grad_output, operands[0].device());
  ElementwiseArguments arguments;
  walk.fill(arguments, grad_output);
  arguments.reduce = call.reduction != Reduction::none;
  arguments.strategy = call.strategy;
  LossAndGradients result;
  result.gradients.resize(operands.size());
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!wanted[k] || !layout.is_full(operands[k])) continue;
    result.gradients[k] = layout.empty(layout.shape(), operands[k].options());
    arguments.gradients[k] = result.gradients[k].mutable_data_ptr();
    if (!expectation) continue;
    arguments.expectation = expectation;
    arguments.guess = Guess::write;
  }
  const auto options = operands[0].options().dtype(walk.type);
  const bool sums_blocks = arguments.reduce && arguments.strategy == Strategy::torch_sum;
  if (sums_blocks) {
    const Launch on(operands[0]);
    const int64_t blocks =
        kernels_for(*this, call, operands[0].device()).partial_sums(arguments, on.context.device);
    result.loss = at::empty({blocks}, options.dtype(at::kDouble));
  } else {
    result.loss = arguments.reduce ? at::empty({}, options) : layout.empty(layout.shape(), options);
  }
  arguments.value = result.loss.mutable_data_ptr();
  if (layout.size() > 0 || arguments.reduce) run(*this, call, arguments, operands);
  if (sums_blocks) result.loss = at::sum(result.loss).mul_(arguments.scale).to(walk.type);
  return result;
}

Tensors LossDefinition::compute_gradients(const Call& call, const Tensor& grad_output,
                                          TensorList operands, const Wanted& wanted,
                                          Expectation* expectation) const {
  Walk walk(call, operands, check_call(*this, call, operands));
  Tensors gradients(operands.size());
  const Layout& layout = walk.layout;
  check_incoming(call, layout.shape(), grad_output, operands[0].device());
  ElementwiseArguments arguments;
  bool full = false;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!wanted[k]) continue;
    if (layout.size() == 0) {
      gradients[k] = at::zeros(operands[k].sizes(), operands[k].options());
    } else if (!layout.is_full(operands[k])) {
      gradients[k] = shared_gradient(*this, call, grad_output, operands, static_cast<int32_t>(k));
    } else {
      gradients[k] = layout.empty(layout.shape(), operands[k].options());
      arguments.gradients[k] = gradients[k].mutable_data_ptr();
      full = true;
    }
  }
  if (!full) return gradients;
  walk.fill(arguments, grad_output);
  if (expectation && call.reduction != Reduction::none) {
    arguments.expectation = expectation;
    arguments.guess = Guess::learn;
  }
  run(*this, call, arguments, operands);
  for (size_t k = 0; k < operands.size(); ++k)
    if (arguments.gradients[k]) gradients[k] = as_operand(gradients[k], operands[k]);
  return gradients;
}

Tensors LossDefinition::check_gradients(const Call& call, const Tensor& grad_output,
                                        TensorList operands, Tensors gradients,
                                        Expectation* expectation) const {
  Walk walk(call, operands, type_of(operands));
  if (walk.layout.size() == 0) return gradients;
  check_incoming(call, walk.layout.shape(), grad_output, operands[0].device());
  ElementwiseArguments arguments;
  walk.fill(arguments, grad_output);
  arguments.expectation = expectation;
  arguments.guess = Guess::check;
  for (size_t k = 0; k < operands.size(); ++k)
    if (gradients[k].defined()) arguments.gradients[k] = gradients[k].mutable_data_ptr();
  run(*this, call, arguments, operands);
  for (size_t k = 0; k < operands.size(); ++k) gradients[k] = as_operand(gradients[k], operands[k]);
  return gradients;
}

c10::SmallVector<Tensor, kMostOperands + 1> LossDefinition::compute_second_derivatives(
    const Call& call, TensorList vectors, const Tensor& grad_output, TensorList operands) const {
  const auto promoted = check_call(*this, call, operands);
  // Everything in the type computed with and of full size: this pass is rare, and its sums are
  // then as good as its elements.
  const auto type = promoted == at::kDouble ? at::kDouble : at::kFloat;
  const Layout layout(operands, operand_names.data());
  const auto full = [&](const Tensor& tensor) {
    return tensor.to(type).expand(layout.shape()).contiguous();
  };
  SecondDerivativeArguments arguments;
  set_call(arguments, call, type, layout.size());
  arguments.size = layout.size();
  Tensors kept, results;
  const auto input = [&](const Tensor& tensor) {
    kept.push_back(full(tensor));
    return kept.back().const_data_ptr();
  };
  const auto output = [&] {
    results.push_back(at::empty(layout.shape(), operands[0].options().dtype(type)));
    return results.back().mutable_data_ptr();
  };
  arguments.grad_output = input(grad_output);
  arguments.out_grad_output = output();
  for (size_t k = 0; k < operands.size(); ++k) {
    arguments.operands[k] = input(operands[k]);
    arguments.vectors[k] = input(vectors[k]);
    arguments.out_operands[k] = output();
  }
  if (layout.size() > 0) {
    Launch on(operands[0]);
    const Kernels& kernels = kernels_for(*this, call, operands[0].device());
    check_status(kernels.second_derivatives(arguments, on.context), call, operands);
  }
  const auto back = [](const Tensor& gradient, const Tensor& like) {
    return at::sum_to(gradient, like.sizes()).to(like.scalar_type());
  };
  c10::SmallVector<Tensor, kMostOperands + 1> gradients{back(results[0], grad_output)};
  for (size_t k = 0; k < operands.size(); ++k)
    gradients.push_back(back(results[k + 1], operands[k]));
  return gradients;
}

}  // namespace losscli
