#include "kernels.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "cpu/engine.h"
#include "fresh.h"
#include "launch.h"
#include "layout.h"

namespace losscli {
namespace {

const Engine* cuda_engine = nullptr;

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::float32;
    case at::kDouble:
      return DType::float64;
    case at::kHalf:
      return DType::float16;
    default:
      return DType::bfloat16;
  }
}

at::ScalarType compute_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

const Engine& engine_for(const LossCall& call, const at::Device& device) {
  if (device.is_cpu()) return cpu::engine;
  TORCH_CHECK(cuda_engine != nullptr, call.name,
              ": the CUDA kernels are not built; run `losscli build --device cuda` to see why");
  return *cuda_engine;
}

// Runs a launch; an error names the loss and the shapes.
template <typename Body>
void launch(const LossCall& call, const at::Tensor& input, const at::Tensor& target, Body body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    TORCH_CHECK(false, call.name, " of input ", input.sizes(), " and target ", target.sizes(),
                " in ", input.scalar_type(), " on ", input.device(), ": ", error.what());
  }
}

// Two operands of one dtype in the forms that kernels take, and what keeps their memory alive.
struct Operands {
  Operands(const at::Tensor& input, const at::Tensor& target, at::ScalarType type)
      : type(type), layout(input, target), input(take(input)), target(take(target)) {}

  Operand take(const at::Tensor& tensor) {
    at::Tensor typed = tensor.scalar_type() == type ? tensor : tensor.to(type);
    auto form = layout.form(typed);
    if (!form) {
      typed = layout.materialize(typed);
      form = Operand{typed.const_data_ptr(), 1, layout.size()};
    }
    kept.push_back(std::move(typed));
    return *form;
  }

  at::ScalarType type;
  Layout layout;
  c10::SmallVector<at::Tensor, 3> kept;
  Operand input;
  Operand target;
};

double scale_of(const LossCall& call, int64_t size) {
  return call.reduction == Reduction::mean ? 1.0 / static_cast<double>(size) : 1.0;
}

template <typename Arguments>
void set_call(Arguments& arguments, const LossCall& call, const Operands& operands) {
  arguments.loss = call.id;
  arguments.dtype = dtype_of(operands.type);
  std::copy(call.parameters.begin(), call.parameters.end(), arguments.parameters);
  arguments.size = operands.layout.size();
  arguments.scale = scale_of(call, arguments.size);
}

LossArguments loss_arguments(const LossCall& call, const Operands& operands) {
  LossArguments arguments{};
  set_call(arguments, call, operands);
  arguments.input = operands.input;
  arguments.target = operands.target;
  arguments.reduce = call.reduction != Reduction::none;
  arguments.strategy = call.strategy;
  return arguments;
}

at::Tensor large_empty(const Layout& layout, const at::TensorOptions& options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  const auto bytes = layout.size() * static_cast<int64_t>(c10::elementSize(type));
  if (!options.device().is_cpu() || bytes < kFreshBytes) return layout.empty(options);
  return fresh_empty(layout.shape(), layout.strides(), type);
}

// The incoming gradient as an operand, broadcast to the loss's shape.
Operand take_grad_output(const LossCall& call, Operands& operands, const at::Tensor& grad_output) {
  TORCH_CHECK(grad_output.device() == operands.kept[0].device(), call.name,
              ": the incoming gradient must be on the operands' device ", operands.kept[0].device(),
              ", but is on ", grad_output.device());
  if (call.reduction != Reduction::none) {
    TORCH_CHECK(grad_output.numel() == 1, call.name,
                ": the incoming gradient of a reduced loss must be one element, but has shape ",
                grad_output.sizes());
    const auto typed = grad_output.to(operands.type);
    operands.kept.push_back(typed);
    return {typed.const_data_ptr(), 1, 1};
  }
  TORCH_CHECK(grad_output.sizes() == operands.layout.shape(), call.name,
              ": the incoming gradient must have the loss's shape ", operands.layout.shape(),
              ", but has shape ", grad_output.sizes());
  return operands.take(grad_output);
}

// The gradient of an operand that several elements of the loss share.
at::Tensor shared_gradient(const LossCall& call, const at::Tensor& grad_output,
                           const at::Tensor& input, const at::Tensor& target, bool for_target) {
  const at::Tensor& shared = for_target ? target : input;
  const auto type = at::result_type(input, target);
  Operands operands(input, target, type);
  const auto form = operands.layout.form(shared);
  if (form && form->period != shared.numel()) {
    // Expanded itself: the gradient has an element for each of its own repeats.
    at::Tensor dense = operands.layout.empty_for(shared, shared.options());
    dense.copy_(shared);
    return shared_gradient(call, grad_output, for_target ? input : dense,
                           for_target ? dense : target, for_target);
  }
  if (!form) {
    // Repeated in dimensions that do not lie side by side: sum a gradient of full size, kept in
    // float64 so that the sum is as good as the fused one.
    const auto full = [&](const at::Tensor& operand) {
      return operand.to(at::kDouble).expand(operands.layout.shape());
    };
    const auto gradients = compute_gradients(call, grad_output.to(at::kDouble), full(input),
                                             full(target), !for_target, for_target);
    const auto& gradient = for_target ? std::get<1>(gradients) : std::get<0>(gradients);
    at::Tensor sum = operands.layout.empty_for(shared, shared.options());
    sum.copy_(at::sum_to(gradient, shared.sizes()));
    return sum;
  }
  SharedGradientArguments arguments{};
  set_call(arguments, call, operands);
  arguments.input = operands.input;
  arguments.target = operands.target;
  arguments.grad_output = take_grad_output(call, operands, grad_output);
  arguments.for_target = for_target;
  at::Tensor gradient = operands.layout.empty_for(shared, shared.options().dtype(type));
  arguments.gradient = gradient.mutable_data_ptr();
  launch(call, input, target, [&] {
    const Engine& engine = engine_for(call, input.device());
    Launch on(input);
    on.reserve(engine.shared_gradient_workspace(arguments));
    engine.shared_gradient(arguments, on.context);
  });
  return gradient.scalar_type() == shared.scalar_type() ? gradient
                                                        : gradient.to(shared.scalar_type());
}

void run_loss(const LossCall& call, const LossArguments& arguments, const at::Tensor& input,
              const at::Tensor& target) {
  launch(call, input, target, [&] {
    const Engine& engine = engine_for(call, input.device());
    Launch on(input);
    on.reserve(engine.loss_workspace(arguments));
    engine.loss(arguments, on.context);
  });
}

}  // namespace

at::Tensor as_operand(const at::Tensor& gradient, const at::Tensor& operand) {
  if (!gradient.defined()) return gradient;
  at::Tensor shaped = gradient;
  if (gradient.dim() != operand.dim()) {
    const auto strides = gradient.strides().slice(gradient.dim() - operand.dim());
    shaped = gradient.as_strided(operand.sizes(), strides);
  }
  return shaped.scalar_type() == operand.scalar_type() ? shaped : shaped.to(operand.scalar_type());
}

Reduction parse_reduction(std::string_view name) {
  if (name == "mean") return Reduction::mean;
  if (name == "sum") return Reduction::sum;
  if (name == "none") return Reduction::none;
  TORCH_CHECK_VALUE(false, "reduction must be 'none', 'mean' or 'sum', but is '", name, "'");
}

Strategy parse_strategy(std::string_view name) {
  if (name == "single_pass") return Strategy::single_pass;
  if (name == "atomic") return Strategy::atomic;
  if (name == "two_pass") return Strategy::two_pass;
  if (name == "tree") return Strategy::tree;
  if (name == "torch_sum") return Strategy::torch_sum;
  TORCH_CHECK_VALUE(false,
                    "strategy must be 'single_pass', 'atomic', 'two_pass', 'tree' or 'torch_sum', "
                    "but is '",
                    name, "'");
}

void check_operands(const LossCall& call, const at::Tensor& input, const at::Tensor& target) {
  const auto type = at::result_type(input, target);
  TORCH_CHECK_TYPE(
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16,
      call.name, ": input and target must be float32, float64, float16 or bfloat16, but are ",
      input.scalar_type(), " and ", target.scalar_type(), "; convert them with .float()");
  TORCH_CHECK(input.device() == target.device(), call.name,
              ": input and target must be on one device, but are on ", input.device(), " and ",
              target.device(), "; move one with .to()");
  TORCH_CHECK_NOT_IMPLEMENTED(input.layout() == at::kStrided && target.layout() == at::kStrided,
                              call.name, ": input and target must be dense tensors, but are ",
                              input.layout(), " and ", target.layout(),
                              "; convert them with .to_dense()");
}

LossAndGradients compute_loss(const LossCall& call, const at::Tensor& input,
                              const at::Tensor& target, bool want_input, bool want_target) {
  check_operands(call, input, target);
  const auto type = at::result_type(input, target);
  Operands operands(input, target, type);
  const auto options = input.options().dtype(type);
  LossArguments arguments = loss_arguments(call, operands);
  LossAndGradients result;
  if (want_input && input.numel() == arguments.size) {
    result.grad_input = large_empty(operands.layout, options);
    arguments.grad_input = result.grad_input.mutable_data_ptr();
  }
  if (want_target && target.numel() == arguments.size) {
    result.grad_target = large_empty(operands.layout, options);
    arguments.grad_target = result.grad_target.mutable_data_ptr();
  }
  const bool sums_blocks = arguments.reduce && arguments.strategy == Strategy::torch_sum;
  if (sums_blocks) {
    const int64_t blocks = engine_for(call, input.device()).block_count(arguments);
    result.loss = at::empty({blocks}, options.dtype(at::kDouble));
  } else {
    result.loss = arguments.reduce ? at::empty({}, options) : large_empty(operands.layout, options);
  }
  arguments.value = result.loss.mutable_data_ptr();
  if (arguments.size > 0 || arguments.reduce) run_loss(call, arguments, input, target);
  if (sums_blocks) result.loss = at::sum(result.loss).mul_(arguments.scale).to(type);
  return result;
}

std::tuple<at::Tensor, at::Tensor> compute_loss_with_grad(const LossCall& call,
                                                          const at::Tensor& input,
                                                          const at::Tensor& target) {
  TORCH_CHECK_TYPE(input.is_floating_point(), call.name, ": an input of ", input.scalar_type(),
                   " has no gradient; convert it with .float()");
  const LossAndGradients result = compute_loss(call, input, target, true, false);
  if (result.grad_input.defined() && result.grad_input.numel() > 0)
    return {result.loss, as_operand(result.grad_input, input)};
  const at::Tensor ones = at::ones({}, result.loss.options()).expand(result.loss.sizes());
  const auto gradients = compute_gradients(call, ones, input, target, true, false);
  return {result.loss, std::get<0>(gradients)};
}

std::tuple<at::Tensor, at::Tensor> compute_gradients(const LossCall& call,
                                                     const at::Tensor& grad_output,
                                                     const at::Tensor& input,
                                                     const at::Tensor& target, bool want_input,
                                                     bool want_target) {
  check_operands(call, input, target);
  const auto type = at::result_type(input, target);
  Operands operands(input, target, type);
  const int64_t size = operands.layout.size();
  at::Tensor grad_input, grad_target;
  if (size == 0) {
    if (want_input) grad_input = at::zeros(input.sizes(), input.options());
    if (want_target) grad_target = at::zeros(target.sizes(), target.options());
    return {grad_input, grad_target};
  }
  const bool full_input = want_input && input.numel() == size;
  const bool full_target = want_target && target.numel() == size;
  if (full_input || full_target) {
    LossArguments arguments = loss_arguments(call, operands);
    arguments.grad_output = take_grad_output(call, operands, grad_output);
    const auto options = input.options().dtype(type);
    if (full_input) {
      grad_input = large_empty(operands.layout, options);
      arguments.grad_input = grad_input.mutable_data_ptr();
    }
    if (full_target) {
      grad_target = large_empty(operands.layout, options);
      arguments.grad_target = grad_target.mutable_data_ptr();
    }
    run_loss(call, arguments, input, target);
    grad_input = as_operand(grad_input, input);
    grad_target = as_operand(grad_target, target);
  }
  if (want_input && !full_input)
    grad_input = shared_gradient(call, grad_output, input, target, false);
  if (want_target && !full_target)
    grad_target = shared_gradient(call, grad_output, input, target, true);
  return {grad_input, grad_target};
}

void rescale_gradients(const LossCall& call, const at::Tensor& grad_output, const at::Tensor& input,
                       const at::Tensor& target, const at::Tensor& grad_input,
                       const at::Tensor& grad_target) {
  Operands operands(input, target, at::result_type(input, target));
  LossArguments arguments = loss_arguments(call, operands);
  if (arguments.size == 0) return;
  arguments.grad_output = take_grad_output(call, operands, grad_output);
  arguments.skip_unit_gradient = true;
  if (grad_input.defined()) arguments.grad_input = grad_input.mutable_data_ptr();
  if (grad_target.defined()) arguments.grad_target = grad_target.mutable_data_ptr();
  run_loss(call, arguments, input, target);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> compute_double_backward(
    const LossCall& call, const at::Tensor& grad_grad_input, const at::Tensor& grad_grad_target,
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& target) {
  check_operands(call, input, target);
  // Everything in the type computed with and of full size: this pass is rare, and its sums are
  // then as good as its elements.
  const auto type = compute_type(at::result_type(input, target));
  const Layout layout(input, target);
  const auto full = [&](const at::Tensor& tensor) {
    return tensor.to(type).expand(layout.shape()).contiguous();
  };
  const at::Tensor x = full(input), y = full(target), g = full(grad_output),
                   toward_x = full(grad_grad_input), toward_y = full(grad_grad_target);
  const at::Tensor grad_g = at::empty_like(x), grad_x = at::empty_like(x),
                   grad_y = at::empty_like(x);
  if (layout.size() > 0) {
    const Operands operands(x, y, type);
    DoubleBackwardArguments arguments{};
    set_call(arguments, call, operands);
    arguments.input = x.const_data_ptr();
    arguments.target = y.const_data_ptr();
    arguments.grad_grad_input = toward_x.const_data_ptr();
    arguments.grad_grad_target = toward_y.const_data_ptr();
    arguments.grad_output = {g.const_data_ptr(), 1, arguments.size};
    arguments.grad_grad_output = grad_g.mutable_data_ptr();
    arguments.grad_input = grad_x.mutable_data_ptr();
    arguments.grad_target = grad_y.mutable_data_ptr();
    launch(call, input, target, [&] {
      Launch on(input);
      engine_for(call, input.device()).double_backward(arguments, on.context);
    });
  }
  const auto back = [](const at::Tensor& gradient, const at::Tensor& like) {
    return at::sum_to(gradient, like.sizes()).to(like.scalar_type());
  };
  return {back(grad_g, grad_output), back(grad_x, input), back(grad_y, target)};
}

}  // namespace losscli

// Hands over the entry points of the CUDA library, once it is loaded.
extern "C" void losscli_register_cuda_engine(const losscli::Engine* engine) {
  losscli::cuda_engine = engine;
}
