#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

#include "torch/fresh.h"
#include "torch/functors.h"
#include "torch/functors_stack.h"
#include "torch/incoming.h"
#include "torch/launch.h"
#include "torch/layout.h"
#include "torch/rows.h"

namespace losscli {
namespace {

using at::Tensor;
using Extents = c10::SmallVector<int64_t, 5>;

// The dimension along which a row of a tensor lies.
int64_t row_dimension(const FunctorLoss& loss, const Tensor& tensor) {
  return loss.second_dimension && tensor.dim() > 1 ? 1 : tensor.dim() - 1;
}

// The sizes or strides of all dimensions but that of a row.
Extents without_row(const FunctorLoss& loss, const Tensor& tensor, at::IntArrayRef of) {
  Extents others;
  const int64_t row = row_dimension(loss, tensor);
  for (int64_t d = 0; d < tensor.dim(); ++d)
    if (d != row) others.push_back(of[d]);
  return others;
}

// The stride by which the dimensions from `first` on are walked as one, none where they are not.
std::optional<int64_t> collapsed(at::IntArrayRef sizes, at::IntArrayRef strides, size_t first) {
  int64_t size = 1, stride = 0;
  for (size_t d = sizes.size(); d-- > first;) {
    if (sizes[d] == 1) continue;
    if (size == 1)
      stride = strides[d];
    else if (strides[d] != stride * size)
      return std::nullopt;
    size *= sizes[d];
  }
  return stride;
}

// The strides of a tensor over the rows: as one dimension, or if `split` as the first dimension and
// all others. None where its dimensions do not collapse so.
std::optional<RowStrides> strides_over(at::IntArrayRef sizes, at::IntArrayRef strides, bool split) {
  RowStrides found;
  if (!split) {
    const auto whole = collapsed(sizes, strides, 0);
    if (!whole) return std::nullopt;
    found.outer = *whole;
    return found;
  }
  const auto inner = collapsed(sizes, strides, 1);
  if (!inner) return std::nullopt;
  found.outer = strides[0];
  found.inner = *inner;
  return found;
}

// A result in the form of another tensor, from memory that costs no page faults where it is large.
Tensor empty_as(const Tensor& like, at::ScalarType type) {
  const int64_t bytes = like.numel() * static_cast<int64_t>(c10::elementSize(type));
  if (like.is_cpu() && bytes >= kFreshBytes && like.is_non_overlapping_and_dense())
    return fresh_empty(like.sizes(), like.strides(), type);
  return at::empty_like(like, like.options().dtype(type));
}

bool is_computable(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

void check_call(const FunctorCall& call, const FunctorOperands& operands) {
  const FunctorLoss& loss = *call.loss;
  const Tensor& first = operands[0];
  const char* const first_name = loss.operand_names[0].c_str();
  TORCH_CHECK_VALUE(first.dim() > 0, call.name(), ": ", first_name,
                    " must have a dimension along which its rows lie, but is a single number");
  const Extents rows = without_row(loss, first, first.sizes());
  for (size_t k = 0; k < operands.size(); ++k) {
    const Tensor& operand = operands[k];
    if (!operand.defined()) continue;
    const char* const name = loss.operand_names[k].c_str();
    const char role = loss.roles[k];
    TORCH_CHECK(operand.device() == first.device(), call.name(), ": ", first_name, " and ", name,
                " must be on one device, but are on ", first.device(), " and ", operand.device(),
                "; move one with .to()");
    TORCH_CHECK_NOT_IMPLEMENTED(operand.layout() == at::kStrided, call.name(), ": ", name,
                                " must be a dense tensor, but is ", operand.layout(),
                                "; convert it with .to_dense()");
    if (role == kRowRole) {
      TORCH_CHECK(operand.sizes() == first.sizes(), call.name(), ": ", name,
                  " must have the shape of ", first_name, " ", first.sizes(), ", but has shape ",
                  operand.sizes());
    } else if (role == kWeightRole) {
      const int64_t length = first.size(row_dimension(loss, first));
      TORCH_CHECK(operand.dim() == 1 && operand.numel() == length, call.name(), ": ", name,
                  " must hold a number for each of the ", length, " classes, but has shape ",
                  operand.sizes());
      TORCH_CHECK(operand.scalar_type() == first.scalar_type(), call.name(), ": ", name,
                  " must have the dtype of ", first_name, ", ", first.scalar_type(), ", but is ",
                  operand.scalar_type());
    } else {
      TORCH_CHECK(operand.sizes() == at::IntArrayRef(rows), call.name(), ": ", name,
                  " must have the shape of the rows of ", first_name, ", ", at::IntArrayRef(rows),
                  ", but has shape ", operand.sizes());
      const auto type = operand.scalar_type();
      TORCH_CHECK(role != kMaskRole || type == at::kBool, call.name(), ": ", name,
                  " must be bool, but is ", type);
      TORCH_CHECK(role != kLabelRole || type == at::kLong || type == at::kInt || type == at::kByte,
                  call.name(), ": ", name,
                  " must hold class numbers in int64, int32 or uint8, but is ", type);
    }
  }
  TORCH_CHECK(call.outputs() == 1 || call.reduction == Reduction::none, call.name(),
              ": two values of a row have no reduction");
  const auto type = type_of(call, operands);
  TORCH_CHECK_TYPE(is_computable(type), call.name(), ": ", first_name,
                   " must be float32, float64, float16 or bfloat16, but is ", type,
                   "; convert it with .float()");
}

// The arguments of a call, and what keeps the memory alive that they point to.
class FunctorWalk {
 public:
  FunctorWalk(const FunctorCall& call, const FunctorOperands& operands)
      : call_(call), operands_(operands) {
    check_call(call, operands);
    const FunctorLoss& loss = *call.loss;
    type_ = type_of(call, operands);
    rows_ = without_row(loss, operands[0], operands[0].sizes());
    arguments.length = operands[0].size(row_dimension(loss, operands[0]));
    arguments.dtype = dtype_of(type_);
    for (size_t k = 0; k < operands.size(); ++k)
      taken_.push_back(!operands[k].defined()         ? Tensor()
                       : loss.roles[k] == kRowRole    ? operands[k].to(type_)
                       : loss.roles[k] == kWeightRole ? operands[k].to(type_).contiguous()
                                                      : operands[k]);
    for (size_t k = 0; k < taken_.size(); ++k) split_ = split_ || !fits(k, false);
    arguments.outer = 1;
    for (size_t d = 0; d < rows_.size(); ++d)
      (split_ && d > 0 ? arguments.inner : arguments.outer) *= rows_[d];
    for (size_t k = 0; k < taken_.size(); ++k) take(k);
    for (size_t p = 0; p < loss.parameters(); ++p) arguments.parameters[p] = call.parameters[p];
    arguments.outputs = call.outputs();
    arguments.reduction = call.reduction == Reduction::none  ? RowReduction::none
                          : call.reduction == Reduction::sum ? RowReduction::sum
                                                             : RowReduction::mean;
  }

  Tensor value() {
    Tensor value = at::empty(loss_shape(), operands_[0].options().dtype(value_type()));
    arguments.wide = call_.loss->wide;
    arguments.value = value.mutable_data_ptr();
    return value;
  }

  FunctorGradients gradients(const FunctorWanted& wanted) {
    FunctorGradients gradients;
    for (size_t k = 0; k < call_.loss->rows(); ++k) {
      if (!wanted[k]) continue;
      gradients[k] = empty_as(operands_[k], type_);
      if (!strides_of(gradients[k], split_))
        gradients[k] = at::empty(gradients[k].sizes(), gradients[k].options());
    }
    into(gradients);
    return gradients;
  }

  void into(const FunctorGradients& gradients) {
    for (size_t k = 0; k < call_.loss->rows(); ++k) {
      if (!gradients[k].defined()) continue;
      arguments.gradient_strides[k] = *strides_of(gradients[k], split_);
      arguments.gradients[k] = gradients[k].mutable_data_ptr();
    }
  }

  void take_grad_output(const Tensor& grad_output) {
    const Extents shape = loss_shape();
    check_incoming(call_.name(), call_.reduction, shape, grad_output, operands_[0].device());
    grad_output_ = grad_output;
    if (call_.reduction == Reduction::none) {
      const size_t first = call_.outputs() > 1 ? 1 : 0;
      if (!collapsed(shape, grad_output_.strides(), first))
        grad_output_ = grad_output_.contiguous();
      arguments.grad_output_stride = *collapsed(shape, grad_output_.strides(), first);
      if (first > 0) arguments.grad_output_output_stride = grad_output_.stride(0);
    }
    arguments.grad_output = grad_output_.const_data_ptr();
    arguments.grad_output_dtype = dtype_of(grad_output_.scalar_type());
  }

  void run() {
    const Tensor& first = operands_[0];
    const RowKernels& kernels = kernels_in(call_.loss->kernels, call_.loss->name, first.device());
    Launch on(first);
    on.reserve(first.device(), kernels.needs(arguments, on.context.device));
    const Status status = kernels.run(arguments, on.context);
    if (status.ok()) return;
    // The one failure of the kernels for the CPU.
    TORCH_CHECK_INDEX(!(first.is_cpu() && status.code == StatusCode::failed), call_.name(), ": ",
                      status.message);
    throw_failure(status,
                  c10::str(call_.name(), " of ", call_.loss->operand_names[0], " ", first.sizes(),
                           " in ", first.scalar_type(), " on ", first.device()));
  }

  RowArguments arguments;

 private:
  std::optional<RowStrides> strides_of(const Tensor& tensor, bool split) const {
    const FunctorLoss& loss = *call_.loss;
    auto found = strides_over(rows_, without_row(loss, tensor, tensor.strides()), split);
    if (found) found->element = tensor.stride(row_dimension(loss, tensor));
    return found;
  }

  std::optional<RowStrides> strides_of_taken(size_t k, bool split) const {
    return call_.loss->roles[k] == kRowRole ? strides_of(taken_[k], split)
                                            : strides_over(rows_, taken_[k].strides(), split);
  }

  bool fits(size_t k, bool split) const {
    return !taken_[k].defined() || call_.loss->roles[k] == kWeightRole ||
           strides_of_taken(k, split).has_value();
  }

  // Kernels know an outer and an inner dimension of rows: a tensor whose rows do not lie so is
  // copied. All others are read in place, transposed and expanded ones too.
  void take(size_t k) {
    Tensor& tensor = taken_[k];
    if (!tensor.defined()) return;
    if (!fits(k, split_)) tensor = tensor.contiguous();
    const char role = call_.loss->roles[k];
    if (role == kWeightRole) {
      arguments.weight = tensor.const_data_ptr();
      return;
    }
    const RowStrides strides = *strides_of_taken(k, split_);
    if (role == kRowRole) {
      arguments.operands[k] = tensor.const_data_ptr();
      arguments.strides[k] = strides;
    } else if (role == kMaskRole) {
      arguments.mask = static_cast<const bool*>(tensor.const_data_ptr());
      arguments.mask_strides = strides;
    } else if (role == kTargetRole) {
      arguments.targets = tensor.const_data_ptr();
      arguments.targets_dtype = dtype_of(tensor.scalar_type());
      arguments.target_strides = strides;
    } else {
      arguments.labels = tensor.const_data_ptr();
      arguments.labels_dtype = dtype_of(tensor.scalar_type());
      arguments.label_strides = strides;
    }
  }

  at::ScalarType value_type() const {
    return call_.loss->wide && type_ != at::kDouble ? at::kFloat : type_;
  }

  // One number where rows are reduced.
  Extents loss_shape() const {
    Extents shape;
    if (call_.reduction != Reduction::none) return shape;
    if (call_.outputs() > 1) shape.push_back(call_.outputs());
    shape.append(rows_.begin(), rows_.end());
    return shape;
  }

  const FunctorCall& call_;
  const FunctorOperands& operands_;
  at::ScalarType type_ = at::kFloat;
  Extents rows_;
  bool split_ = false;
  FunctorOperands taken_;
  Tensor grad_output_;
};

FunctorGradients zeros(const FunctorCall& call, const FunctorOperands& operands,
                       const FunctorWanted& wanted) {
  FunctorGradients gradients;
  for (size_t k = 0; k < call.loss->rows(); ++k)
    if (wanted[k]) gradients[k] = at::zeros_like(operands[k]);
  return gradients;
}

}  // namespace

FunctorOperands defined(const FunctorOperands& operands) {
  FunctorOperands all;
  for (const Tensor& operand : operands)
    if (operand.defined()) all.push_back(operand);
  return all;
}

bool has_kernels(const FunctorLoss& loss, const at::Device& device) {
  return loss.kernels[static_cast<size_t>(kind_of(device))].load() != nullptr;
}

bool is_empty(const FunctorOperands& operands) { return operands[0].numel() == 0; }

at::ScalarType type_of(const FunctorCall& call, const FunctorOperands& operands) {
  auto type = operands[0].scalar_type();
  for (size_t k = 1; k < call.loss->rows(); ++k)
    type = c10::promoteTypes(type, operands[k].scalar_type());
  return type;
}

FunctorResult compute_functor(const FunctorCall& call, const FunctorOperands& operands,
                              const FunctorWanted& wanted, Expectation* expectation) {
  if (is_empty(operands)) {
    check_call(call, operands);
    return {call_functor_reference(call, operands), zeros(call, operands, wanted)};
  }
  FunctorWalk walk(call, operands);
  FunctorResult result;
  result.loss = walk.value();
  result.gradients = walk.gradients(wanted);
  if (is_any(wanted) && expectation) {
    walk.arguments.expectation = expectation;
    walk.arguments.guess = Guess::write;
  }
  walk.run();
  return result;
}

FunctorGradients compute_functor_gradients(const FunctorCall& call, const Tensor& grad_output,
                                           const FunctorOperands& operands,
                                           const FunctorWanted& wanted, Expectation* expectation) {
  if (is_empty(operands) || !is_any(wanted)) return zeros(call, operands, wanted);
  FunctorWalk walk(call, operands);
  walk.take_grad_output(grad_output);
  FunctorGradients gradients = walk.gradients(wanted);
  if (call.reduction != Reduction::none && expectation) {
    walk.arguments.expectation = expectation;
    walk.arguments.guess = Guess::learn;
  }
  walk.run();
  for (size_t k = 0; k < call.loss->rows(); ++k)
    if (gradients[k].defined()) gradients[k] = as_input(gradients[k], operands[k]);
  return gradients;
}

void check_functor_gradients(const FunctorCall& call, const Tensor& grad_output,
                             const FunctorOperands& operands, const FunctorGradients& gradients,
                             Expectation* expectation) {
  if (is_empty(operands)) return;
  FunctorWalk walk(call, operands);
  walk.take_grad_output(grad_output);
  walk.into(gradients);
  walk.arguments.expectation = expectation;
  walk.arguments.guess = Guess::check;
  walk.run();
}

}  // namespace losscli
