#include <ATen/MemoryOverlap.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

#include "rows/cross_entropy.h"
#include "torch/fresh.h"
#include "torch/incoming.h"
#include "torch/launch.h"
#include "torch/layout.h"
#include "torch/rows.h"

namespace losscli {
namespace {

using at::Tensor;

// The stride by which the dimensions from `first` on are walked as one, none where they are not.
std::optional<int64_t> collapsed_stride(const Tensor& tensor, int64_t first) {
  int64_t size = 1, stride = 0;
  for (int64_t d = tensor.dim() - 1; d >= first; --d) {
    if (tensor.size(d) == 1) continue;
    if (size == 1)
      stride = tensor.stride(d);
    else if (tensor.stride(d) != stride * size)
      return std::nullopt;
    size *= tensor.size(d);
  }
  return stride;
}

// The strides of a tensor of rows, with classes or without; none where the inner dimensions do not
// collapse to one.
std::optional<RowStrides> row_strides(const Tensor& tensor, bool has_classes) {
  RowStrides strides;
  if (has_classes) strides.element = tensor.stride(tensor.dim() == 1 ? 0 : 1);
  const int64_t first = has_classes ? 2 : 1;
  if (tensor.dim() >= first) strides.outer = tensor.stride(0);
  const auto inner = collapsed_stride(tensor, first);
  if (!inner) return std::nullopt;
  strides.inner = *inner;
  return strides;
}

// Takes a tensor as kernels walk it. Kernels know an outer and an inner dimension: a tensor whose
// d1, d2, ... do not lie as one, such as a crop of an image, is copied. All others are read in
// place, transposed and expanded ones too.
RowStrides take(Tensor& tensor, bool has_classes) {
  if (const auto strides = row_strides(tensor, has_classes)) return *strides;
  tensor = tensor.contiguous();
  return *row_strides(tensor, has_classes);
}

// A result in the form of another tensor, from memory that costs no page faults where it is large.
Tensor empty_as(const Tensor& like, at::ScalarType type) {
  const int64_t bytes = like.numel() * static_cast<int64_t>(c10::elementSize(type));
  if (like.is_cpu() && bytes >= kFreshBytes && like.is_non_overlapping_and_dense())
    return fresh_empty(like.sizes(), like.strides(), type);
  return at::empty_like(like, like.options().dtype(type));
}

// The arguments of a call, and what keeps the memory alive that they point to.
class RowWalk {
 public:
  RowWalk(const RowCall& call, const RowOperands& operands)
      : call_(call), operands_(operands), type_(type_of(operands)) {
    check_call(call, operands);
    const Tensor& input = operands.input;
    const bool probabilities = operands.has_probabilities();
    arguments.outer = input.dim() == 1 ? 1 : input.size(0);
    arguments.length = input.size(input.dim() == 1 ? 0 : 1);
    for (int64_t d = 2; d < input.dim(); ++d) arguments.inner *= input.size(d);
    arguments.dtype = dtype_of(type_);
    logits_ = input.to(type_);
    arguments.strides[0] = take(logits_, true);
    arguments.operands[0] = logits_.const_data_ptr();
    targets_ = probabilities ? operands.target.to(type_) : operands.target;
    const RowStrides target_strides = take(targets_, probabilities);
    if (probabilities) {
      arguments.operands[1] = targets_.const_data_ptr();
      arguments.strides[1] = target_strides;
    } else {
      arguments.labels = targets_.const_data_ptr();
      arguments.labels_dtype = dtype_of(targets_.scalar_type());
      arguments.label_strides = target_strides;
    }
    if (operands.weight.defined()) {
      weight_ = operands.weight.to(type_).contiguous();
      arguments.weight = weight_.const_data_ptr();
    }
    arguments.parameters[kIgnoreIndex] = static_cast<double>(call.ignore_index);
    arguments.parameters[kLabelSmoothing] = call.label_smoothing;
    arguments.parameters[kTemperature] = call.temperature;
    arguments.parameters[kSoftcap] = call.softcap;
    arguments.parameters[kZLoss] = call.z_loss;
    arguments.reduction = call.reduction == Reduction::none  ? RowReduction::none
                          : call.reduction == Reduction::sum ? RowReduction::sum
                                                             : RowReduction::mean;
  }

  Tensor value() {
    const auto options = operands_.input.options().dtype(type_);
    Tensor value = at::empty(loss_shape(), options);
    arguments.value = value.mutable_data_ptr();
    return value;
  }

  Tensor gradient() {
    Tensor gradient = empty_as(operands_.input, type_);
    if (!row_strides(gradient, true)) gradient = at::empty(gradient.sizes(), gradient.options());
    into(gradient);
    return gradient;
  }

  void into(const Tensor& gradient) {
    arguments.gradient_strides[0] = *row_strides(gradient, true);
    arguments.gradients[0] = gradient.mutable_data_ptr();
  }

  // Whether the logits are read where they are, and so a gradient may be written over them.
  bool reads_in_place() const {
    return logits_.const_data_ptr() == operands_.input.const_data_ptr();
  }

  void take_grad_output(const Tensor& grad_output) {
    const Tensor& input = operands_.input;
    check_incoming(call_.name(), call_.reduction, loss_shape(), grad_output, input.device());
    grad_output_ = grad_output;
    if (call_.reduction == Reduction::none) {
      if (!collapsed_stride(grad_output_, 0)) grad_output_ = grad_output_.contiguous();
      arguments.grad_output_stride = *collapsed_stride(grad_output_, 0);
    }
    arguments.grad_output = grad_output_.const_data_ptr();
    arguments.grad_output_dtype = dtype_of(grad_output_.scalar_type());
  }

  void run() {
    const Tensor& input = operands_.input;
    const RowKernels& kernels = kernels_in(call_.loss->kernels, call_.loss->name, input.device());
    Launch on(input);
    on.reserve(input.device(), kernels.needs(arguments, on.context.device));
    const Status status = kernels.run(arguments, on.context);
    if (status.ok()) return;
    // The one failure of the kernels for the CPU.
    TORCH_CHECK_INDEX(!(input.is_cpu() && status.code == StatusCode::failed), call_.name(), ": ",
                      status.message);
    throw_failure(status, c10::str(call_.name(), " of input ", input.sizes(), " in ",
                                   input.scalar_type(), " and target ", operands_.target.sizes(),
                                   " in ", operands_.target.scalar_type(), " on ", input.device()));
  }

  RowArguments arguments;

 private:
  // That of the input without its classes; one number where rows are reduced.
  c10::SmallVector<int64_t, 5> loss_shape() const {
    c10::SmallVector<int64_t, 5> shape;
    const Tensor& input = operands_.input;
    if (call_.reduction == Reduction::none)
      for (int64_t d = 0; d < input.dim(); ++d)
        if (d != 1 && input.dim() > 1) shape.push_back(input.size(d));
    return shape;
  }

  const RowCall& call_;
  const RowOperands& operands_;
  at::ScalarType type_;
  Tensor logits_, targets_, weight_, grad_output_;
};

// Without rows or without classes: what PyTorch makes of nothing.
Tensor loss_of_nothing(const RowCall& call, const RowOperands& operands) {
  check_call(call, operands);
  const bool probabilities = operands.has_probabilities();
  const Tensor target = probabilities ? operands.target : operands.target.to(at::kLong);
  const auto weight =
      operands.weight.defined() ? std::optional<Tensor>(operands.weight) : std::optional<Tensor>();
  const int64_t reduction = call.reduction == Reduction::none   ? at::Reduction::None
                            : call.reduction == Reduction::mean ? at::Reduction::Mean
                                                                : at::Reduction::Sum;
  return at::cross_entropy_loss(operands.input, target, weight, reduction, call.ignore_index,
                                call.label_smoothing);
}

}  // namespace

bool has_kernels(const RowLossDefinition& loss, const at::Device& device) {
  return loss.kernels[static_cast<int>(kind_of(device))].load() != nullptr;
}

Tensor as_input(const Tensor& gradient, const Tensor& input) {
  const bool dense = input.is_non_overlapping_and_dense();
  const Tensor like = dense ? input : at::empty_like(input, input.options().device(at::kMeta));
  if (gradient.scalar_type() == input.scalar_type() && gradient.strides() == like.strides())
    return gradient;
  return at::empty_like(input).copy_(gradient);
}

RowResult compute_rows(const RowCall& call, const RowOperands& operands, bool wanted,
                       Expectation* expectation) {
  if (operands.is_empty())
    return {loss_of_nothing(call, operands), wanted ? at::zeros_like(operands.input) : Tensor()};
  RowWalk walk(call, operands);
  RowResult result;
  result.loss = walk.value();
  if (wanted) result.gradient = walk.gradient();
  if (wanted && expectation) {
    walk.arguments.expectation = expectation;
    walk.arguments.guess = Guess::write;
  }
  walk.run();
  return result;
}

Tensor compute_rows_in_place(const RowCall& call, const RowOperands& operands) {
  const Tensor& input = operands.input;
  if (operands.is_empty()) return loss_of_nothing(call, operands);
  at::assert_no_internal_overlap(input);
  RowWalk walk(call, operands);
  const Tensor loss = walk.value();
  if (walk.reads_in_place()) {
    walk.into(input);
    walk.run();
  } else {
    const Tensor gradient = walk.gradient();
    walk.run();
    input.copy_(gradient);
  }
  return loss;
}

Tensor compute_row_gradient(const RowCall& call, const Tensor& grad_output,
                            const RowOperands& operands, Expectation* expectation) {
  if (operands.is_empty()) return at::zeros_like(operands.input);
  RowWalk walk(call, operands);
  walk.take_grad_output(grad_output);
  const Tensor gradient = walk.gradient();
  if (call.reduction != Reduction::none && expectation) {
    walk.arguments.expectation = expectation;
    walk.arguments.guess = Guess::learn;
  }
  walk.run();
  return as_input(gradient, operands.input);
}

void check_row_gradient(const RowCall& call, const Tensor& grad_output, const RowOperands& operands,
                        const Tensor& gradient, Expectation* expectation) {
  if (operands.is_empty()) return;
  RowWalk walk(call, operands);
  walk.take_grad_output(grad_output);
  walk.into(gradient);
  walk.arguments.expectation = expectation;
  walk.arguments.guess = Guess::check;
  walk.run();
}

}  // namespace losscli
