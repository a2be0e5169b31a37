#include "torch/compute.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "torch/fresh.h"
#include "torch/incoming.h"
#include "torch/launch.h"
#include "torch/layout.h"

namespace losscli {
namespace {

using at::Tensor;
using TensorList = at::ArrayRef<Tensor>;

const Kernels& kernels_for(const LossCall& call, const at::Device& device) {
  const auto& table =
      call.strategy == Strategy::single_pass ? call.loss->kernels : call.loss->strategies;
  return kernels_in(table, call.loss->name, device);
}

// "input and target", or whatever `word` makes of each operand.
template <typename Word>
std::string list(const LossCall& call, Word word) {
  std::string text;
  for (size_t k = 0; k < call.operands(); ++k)
    text += c10::str(k == 0 ? "" : k + 1 == call.operands() ? " and " : ", ", word(k));
  return text;
}

std::string describe(TensorList operands, const LossCall& call) {
  return list(call, [&](size_t k) {
    return c10::str(call.loss->operand_names[k], " ", operands[k].sizes(), " in ",
                    operands[k].scalar_type());
  });
}

// Turns what a launch reports into an exception that names the loss and the operands.
void check_status(const Status& status, const LossCall& call, TensorList operands) {
  if (status.ok()) return;
  throw_failure(status, c10::str(call.name(), " of ", describe(operands, call), " on ",
                                 operands[0].device()));
}

double scale_of(const LossCall& call, int64_t size) {
  return call.reduction == Reduction::mean ? 1.0 / static_cast<double>(size) : 1.0;
}

// The operands of a call in the form that kernels take, and what keeps their memory alive: copies
// of them where they have more dimensions than kernels walk.
class Walk {
 public:
  Walk(const LossCall& call, TensorList operands)
      : layout(operands, call.loss->operand_words.data()),
        tensors(operands.begin(), operands.end()) {}

  // Together with a grad_output of full size, if there is one.
  template <typename Arguments>
  void fill(const LossCall& call, Arguments& arguments, const Tensor* grad_output) {
    if (grad_output) tensors.push_back(*grad_output);
    std::array<Operand, kMostOperands + 1> forms;
    if (!layout.collapse(tensors, arguments.space, forms.data())) {
      for (Tensor& tensor : tensors) {
        Tensor copy = layout.empty(tensor.options());
        tensor = copy.copy_(tensor);
      }
      layout.collapse(tensors, arguments.space, forms.data());
    }
    std::copy_n(forms.begin(), call.operands(), arguments.operands);
    if (grad_output) arguments.grad_output = forms[call.operands()];
  }

  Layout layout;
  Tensors tensors;
};

template <typename Arguments>
void set_call(Arguments& arguments, const LossCall& call, at::ScalarType type, int64_t size) {
  arguments.dtype = dtype_of(type);
  std::copy(call.parameters.begin(), call.parameters.end(), arguments.parameters);
  arguments.scale = scale_of(call, size);
}

// One number that multiplies all gradients.
Operand as_number(const Tensor& tensor) {
  Operand operand;
  operand.data = tensor.const_data_ptr();
  operand.dtype = dtype_of(tensor.scalar_type());
  return operand;
}

void check_grad_output(const LossCall& call, const Layout& layout, const Tensor& grad_output,
                       const Tensor& operand) {
  check_incoming(call.name(), call.reduction, layout.shape(), grad_output, operand.device());
}

// A result of full size, from memory that costs no page faults where it is large.
Tensor large_empty(const Layout& layout, const at::TensorOptions& options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  const auto bytes = layout.size() * static_cast<int64_t>(c10::elementSize(type));
  if (!options.device().is_cpu() || bytes < kFreshBytes) return layout.empty(options);
  return fresh_empty(layout.shape(), layout.strides(), type);
}

void run(const LossCall& call, const ElementwiseArguments& arguments, TensorList operands) {
  const Kernels& kernels = kernels_for(call, operands[0].device());
  Launch on(operands[0]);
  on.reserve(operands[0].device(), kernels.elementwise_needs(arguments, on.context.device));
  check_status(kernels.elementwise(arguments, on.context), call, operands);
}

// The gradient of an operand that several elements of the loss share.
Tensor shared_gradient(const LossCall& call, const Tensor& grad_output, TensorList operands,
                       int32_t shared) {
  const Tensor& operand = operands[shared];
  Walk walk(call, operands);
  SharedGradientArguments arguments;
  set_call(arguments, call, promoted_type(operands), walk.layout.size());
  arguments.shared = shared;
  const bool one = call.reduction != Reduction::none;
  if (one)
    arguments.grad_output = as_number(grad_output);
  else
    walk.tensors.push_back(grad_output);
  std::array<Operand, kMostOperands + 1> forms;
  if (!walk.layout.collapse_shared(walk.tensors, operand, arguments.space, forms.data(),
                                   arguments.kept, arguments.repeats_fastest)) {
    for (Tensor& tensor : walk.tensors) {
      if (tensor.sizes() == operand.sizes()) continue;
      Tensor copy = walk.layout.empty(tensor.options());
      tensor = copy.copy_(tensor);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        walk.layout.collapse_shared(walk.tensors, operand, arguments.space, forms.data(),
                                    arguments.kept, arguments.repeats_fastest),
        call.name(),
        ": the gradient of an operand that is repeated along so many dimensions apart (",
        operand.sizes(), " in ", walk.layout.shape(), ") is not supported; expand it yourself");
  }
  std::copy_n(forms.begin(), call.operands(), arguments.operands);
  if (!one) arguments.grad_output = forms[call.operands()];
  Tensor gradient = walk.layout.empty_for(operand);
  arguments.gradient = gradient.mutable_data_ptr();
  const Kernels& kernels = kernels_for(call, operand.device());
  Launch on(operand);
  on.reserve(operand.device(), kernels.shared_gradient_needs(arguments, on.context.device));
  check_status(kernels.shared_gradient(arguments, on.context), call, operands);
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

}  // namespace

Tensor as_operand(const Tensor& gradient, const Tensor& operand) {
  if (!gradient.defined() || gradient.dim() == operand.dim()) return gradient;
  return gradient.as_strided(operand.sizes(),
                             gradient.strides().slice(gradient.dim() - operand.dim()));
}

Reduction parse_reduction(std::string_view name) {
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  if (name == "none") return Reduction::none;
  TORCH_CHECK_VALUE(false, "reduction must be 'none', 'mean' or 'sum', but is '", name, "'");
}

Strategy parse_strategy(std::string_view name) {
  if (name == "atomic") return Strategy::atomic;
  if (name == "two_pass") return Strategy::two_pass;
  if (name == "tree") return Strategy::tree;
  if (name == "torch_sum") return Strategy::torch_sum;
  TORCH_CHECK_VALUE(false, "strategy must be 'atomic', 'two_pass', 'tree' or 'torch_sum', but is '",
                    name, "'");
}

bool has_kernels(const LossCall& call, const at::Device& device) {
  const auto& table =
      call.strategy == Strategy::single_pass ? call.loss->kernels : call.loss->strategies;
  return table[static_cast<int>(kind_of(device))].load() != nullptr;
}

at::ScalarType promoted_type(TensorList operands) {
  if (operands.size() == 2) return at::result_type(operands[0], operands[1]);
  at::native::ResultTypeState state = {};
  for (const Tensor& operand : operands)
    state = at::native::update_result_type_state(operand, state);
  return at::native::result_type(state);
}

void check_call(const LossCall& call, TensorList operands) {
  const LossDefinition& loss = *call.loss;
  const auto type = promoted_type(operands);
  TORCH_CHECK_TYPE(
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16,
      call.name(), ": ", list(call, [&](size_t k) { return loss.operand_names[k]; }),
      " must be float32, float64, float16 or bfloat16, but are ",
      list(call, [&](size_t k) { return c10::toString(operands[k].scalar_type()); }),
      "; convert them with .float()");
  for (size_t k = 1; k < operands.size(); ++k)
    TORCH_CHECK(operands[k].device() == operands[0].device(), call.name(), ": ",
                loss.operand_names[0], " and ", loss.operand_names[k],
                " must be on one device, but are on ", operands[0].device(), " and ",
                operands[k].device(), "; move one with .to()");
  for (size_t k = 0; k < operands.size(); ++k)
    TORCH_CHECK_NOT_IMPLEMENTED(operands[k].layout() == at::kStrided, call.name(), ": ",
                                loss.operand_names[k], " must be a dense tensor, but is ",
                                operands[k].layout(), "; convert it with .to_dense()");
  const Kernels& kernels = kernels_for(call, operands[0].device());
  for (int32_t p = 0; p < kernels.parameters; ++p) {
    const Parameter& parameter = kernels.parameter[p];
    const double value = call.parameters[p];
    TORCH_CHECK_VALUE(is_in_domain(value, parameter), call.name(), ": ", parameter.name,
                      " must be ", domain_of(parameter), ", but is ", value);
  }
  if (call.strategy == Strategy::atomic)
    at::globalContext().alertNotDeterministic("the reduction strategy 'atomic' of losscli");
}

LossAndGradients compute_loss(const LossCall& call, TensorList operands, const Wanted& wanted,
                              Expectation* expectation, const Tensor& grad_output) {
  check_call(call, operands);
  const auto type = promoted_type(operands);
  Walk walk(call, operands);
  const Layout& layout = walk.layout;
  ElementwiseArguments arguments;
  set_call(arguments, call, type, layout.size());
  walk.fill(call, arguments, nullptr);
  arguments.reduce = call.reduction != Reduction::none;
  arguments.strategy = call.strategy;
  if (grad_output.defined()) {
    check_grad_output(call, layout, grad_output, operands[0]);
    arguments.grad_output = as_number(grad_output);
  }
  LossAndGradients result;
  result.gradients.resize(operands.size());
  bool writes = false;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!wanted[k] || !layout.is_full(operands[k])) continue;
    result.gradients[k] = large_empty(layout, operands[k].options());
    arguments.gradients[k] = result.gradients[k].mutable_data_ptr();
    writes = true;
  }
  if (writes && expectation) {
    arguments.expectation = expectation;
    arguments.guess = Guess::write;
  }
  const auto options = operands[0].options().dtype(type);
  const bool sums_blocks = arguments.reduce && arguments.strategy == Strategy::torch_sum;
  if (sums_blocks) {
    const Launch on(operands[0]);
    const int64_t blocks =
        kernels_for(call, operands[0].device()).partial_sums(arguments, on.context.device);
    result.loss = at::empty({blocks}, options.dtype(at::kDouble));
  } else {
    result.loss = arguments.reduce ? at::empty({}, options) : large_empty(layout, options);
  }
  arguments.value = result.loss.mutable_data_ptr();
  if (layout.size() > 0 || arguments.reduce) run(call, arguments, operands);
  if (sums_blocks) result.loss = at::sum(result.loss).mul_(arguments.scale).to(type);
  return result;
}

bool pays_ahead(const LossCall& call, TensorList operands) {
  const int64_t least = kernels_for(call, operands[0].device()).least_ahead;
  return std::any_of(operands.begin(), operands.end(),
                     [&](const Tensor& operand) { return operand.numel() >= least; });
}

Tensors compute_gradients(const LossCall& call, const Tensor& grad_output, TensorList operands,
                          const Wanted& wanted, Expectation* expectation) {
  check_call(call, operands);
  Tensors gradients;
  gradients.resize(operands.size());
  Walk walk(call, operands);
  const Layout& layout = walk.layout;
  check_grad_output(call, layout, grad_output, operands[0]);
  if (layout.size() == 0) {
    for (size_t k = 0; k < operands.size(); ++k)
      if (wanted[k]) gradients[k] = at::zeros(operands[k].sizes(), operands[k].options());
    return gradients;
  }
  ElementwiseArguments arguments;
  bool full = false;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!wanted[k]) continue;
    if (!layout.is_full(operands[k])) {
      gradients[k] = shared_gradient(call, grad_output, operands, static_cast<int32_t>(k));
      continue;
    }
    gradients[k] = large_empty(layout, operands[k].options());
    arguments.gradients[k] = gradients[k].mutable_data_ptr();
    full = true;
  }
  if (!full) return gradients;
  set_call(arguments, call, promoted_type(operands), layout.size());
  const bool one = call.reduction != Reduction::none;
  walk.fill(call, arguments, one ? nullptr : &grad_output);
  if (one) arguments.grad_output = as_number(grad_output);
  if (one && expectation) {
    arguments.expectation = expectation;
    arguments.guess = Guess::learn;
  }
  run(call, arguments, operands);
  for (size_t k = 0; k < operands.size(); ++k)
    if (arguments.gradients[k]) gradients[k] = as_operand(gradients[k], operands[k]);
  return gradients;
}

Tensors check_gradients(const LossCall& call, const Tensor& grad_output, TensorList operands,
                        Tensors gradients, Expectation* expectation) {
  Walk walk(call, operands);
  if (walk.layout.size() == 0) return gradients;
  check_grad_output(call, walk.layout, grad_output, operands[0]);
  ElementwiseArguments arguments;
  set_call(arguments, call, promoted_type(operands), walk.layout.size());
  walk.fill(call, arguments, nullptr);
  arguments.grad_output = as_number(grad_output);
  arguments.expectation = expectation;
  arguments.guess = Guess::check;
  for (size_t k = 0; k < operands.size(); ++k)
    if (gradients[k].defined()) arguments.gradients[k] = gradients[k].mutable_data_ptr();
  run(call, arguments, operands);
  for (size_t k = 0; k < operands.size(); ++k) gradients[k] = as_operand(gradients[k], operands[k]);
  return gradients;
}

c10::SmallVector<Tensor, kMostOperands + 1> compute_second_derivatives(const LossCall& call,
                                                                       TensorList vectors,
                                                                       const Tensor& grad_output,
                                                                       TensorList operands) {
  check_call(call, operands);
  // Everything in the type computed with and of full size: this pass is rare, and its sums are
  // then as good as its elements.
  const auto type = promoted_type(operands) == at::kDouble ? at::kDouble : at::kFloat;
  const Layout layout(operands, call.loss->operand_words.data());
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
    check_status(kernels_for(call, operands[0].device()).second_derivatives(arguments, on.context),
                 call, operands);
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
