#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/movedim.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <optional>
#include <string>

#include "parts/kernels.h"
#include "torch/checks.h"
#include "torch/fresh.h"
#include "torch/launch.h"
#include "torch/layout.h"
#include "torch/rows.h"
#include "torch/stack.h"

namespace losscli {
namespace {

using at::Tensor;

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
  const auto last = collapsed(sizes, strides, split ? 1 : 0);
  if (!last) return std::nullopt;
  RowStrides found;
  (split ? found.inner : found.outer) = *last;
  if (split) found.outer = strides[0];
  return found;
}

// The arguments of a call, and what keeps the memory alive that they point to.
class RowWalk {
 public:
  RowWalk(const RowLossDefinition& loss, const Call& call, TensorList operands)
      : call_(call), loss_(loss), operands_(operands), type_(loss.check(call, operands)) {
    rows_ = loss.without_row(operands[0].sizes());
    arguments.length = operands[0].size(loss_.row_dimension(operands[0].dim()));
    arguments.dtype = dtype_of(type_);
    for (size_t k = 0; k < operands.size(); ++k) {
      taken_.push_back(operands[k]);
      if (!operands[k].defined()) continue;
      if (loss_.is_row(k)) taken_[k] = operands[k].to(type_);
      if (loss_.is_weight(k)) taken_[k] = operands[k].to(type_).contiguous();
    }
    for (size_t k = 0; k < taken_.size(); ++k) split_ = split_ || !fits(k, false);
    arguments.outer = 1;
    for (size_t d = 0; d < rows_.size(); ++d)
      (split_ && d > 0 ? arguments.inner : arguments.outer) *= rows_[d];
    for (size_t k = 0; k < taken_.size(); ++k) take(k);
    std::copy_n(call.parameters.begin(), kMostRowParameters, arguments.parameters);
    arguments.outputs = loss.outputs(call);
    arguments.reduction = call.reduction == Reduction::none  ? RowReduction::none
                          : call.reduction == Reduction::sum ? RowReduction::sum
                                                             : RowReduction::mean;
  }

  Tensor values_of_part() {
    Dimensions shape = rows_;
    shape.insert(shape.begin(), kDivergenceNumbers);
    const auto type = type_ == at::kDouble ? at::kDouble : at::kFloat;
    Tensor values = at::empty(shape, operands_[0].options().dtype(type));
    arguments.outputs = kDivergenceNumbers;
    arguments.wide = true;
    arguments.value = values.mutable_data_ptr();
    return values;
  }

  Tensor value(bool wide) {
    const bool widens = wide && type_ != at::kDouble;
    Tensor value =
        at::empty(loss_shape(), operands_[0].options().dtype(widens ? at::kFloat : type_));
    arguments.wide = wide;
    arguments.value = value.mutable_data_ptr();
    return value;
  }

  Tensors gradients(const Wanted& wanted) {
    Tensors gradients(loss_.gradients);
    for (size_t k = 0; k < gradients.size(); ++k) {
      if (!wanted[k]) continue;
      const Tensor& like = operands_[k];
      const auto options = like.options().dtype(type_);
      gradients[k] = like.is_non_overlapping_and_dense()
                         ? fresh_empty(like.sizes(), like.strides(), options)
                         : at::empty_like(like, options);
      // Rows one after the other lie in any way that the kernels walk.
      if (!strides_of(gradients[k], split_)) {
        Dimensions sizes = rows_;
        sizes.push_back(arguments.length);
        gradients[k] = at::empty(sizes, options).movedim(-1, loss_.row_dimension(like.dim()));
      }
    }
    into(gradients);
    return gradients;
  }

  void into(TensorList gradients) {
    for (size_t k = 0; k < gradients.size(); ++k) {
      if (!gradients[k].defined()) continue;
      arguments.gradient_strides[k] = *strides_of(gradients[k], split_);
      arguments.gradients[k] = gradients[k].mutable_data_ptr();
    }
  }

  // Whether the first operand is read where it is, and so its gradient may be written over it.
  bool reads_in_place() const {
    return taken_[0].const_data_ptr() == operands_[0].const_data_ptr();
  }

  void take_grad_output(const Tensor& grad_output) {
    const Dimensions shape = loss_shape();
    check_incoming(call_, shape, grad_output, operands_[0].device());
    grad_output_ = grad_output;
    if (call_.reduction == Reduction::none) {
      const size_t first = loss_.outputs(call_) > 1 ? 1 : 0;
      if (!collapsed(shape, grad_output_.strides(), first))
        grad_output_ = grad_output_.contiguous();
      arguments.grad_output_stride = *collapsed(shape, grad_output_.strides(), first);
      if (first > 0) arguments.grad_output_output_stride = grad_output_.stride(0);
    }
    arguments.grad_output = grad_output_.const_data_ptr();
    arguments.grad_output_dtype = dtype_of(grad_output_.scalar_type());
  }

  void expect(Expectation* expectation, Guess guess) {
    if (!expectation) return;
    arguments.expectation = expectation;
    arguments.guess = guess;
  }

  void run() {
    const Tensor& first = operands_[0];
    const RowKernels& kernels = kernels_in(loss_.kernels, loss_.name, first.device());
    const Status status = launch(first, kernels.needs, kernels.run, arguments);
    // The one failure of the kernels for the CPU.
    TORCH_CHECK_INDEX(!(first.is_cpu() && status.code == StatusCode::failed), call_.name(), ": ",
                      status.message);
    check_status(status, call_, operands_);
  }

  RowArguments arguments;

 private:
  std::optional<RowStrides> strides_of(const Tensor& tensor, bool split) const {
    auto found = strides_over(rows_, loss_.without_row(tensor.strides()), split);
    if (found) found->element = tensor.stride(loss_.row_dimension(tensor.dim()));
    return found;
  }

  std::optional<RowStrides> strides_of_taken(size_t k, bool split) const {
    return loss_.is_row(k) ? strides_of(taken_[k], split)
                           : strides_over(rows_, taken_[k].strides(), split);
  }

  bool fits(size_t k, bool split) const {
    return !taken_[k].defined() || loss_.is_weight(k) || strides_of_taken(k, split).has_value();
  }

  // Kernels know an outer and an inner dimension of rows: a tensor whose rows do not lie so, such
  // as a crop of an image, is copied. All others are read in place, transposed and expanded ones
  // too.
  void take(size_t k) {
    Tensor& tensor = taken_[k];
    if (!tensor.defined()) return;
    if (!fits(k, split_)) tensor = tensor.contiguous();
    const void* const data = tensor.const_data_ptr();
    if (loss_.is_weight(k)) {
      arguments.weight = data;
      return;
    }
    const RowStrides strides = *strides_of_taken(k, split_);
    if (loss_.is_row(k)) {
      arguments.operands[k] = data;
      arguments.strides[k] = strides;
    } else if (loss_.roles[k] == kMaskRole) {
      arguments.mask = static_cast<const bool*>(data);
      arguments.mask_strides = strides;
    } else if (loss_.roles[k] == kTargetRole) {
      arguments.targets = data;
      arguments.targets_dtype = dtype_of(tensor.scalar_type());
      arguments.target_strides = strides;
    } else {
      arguments.labels = data;
      arguments.labels_dtype = dtype_of(tensor.scalar_type());
      arguments.label_strides = strides;
    }
  }

  // One number where rows are reduced.
  Dimensions loss_shape() const {
    Dimensions shape;
    if (call_.reduction != Reduction::none) return shape;
    if (loss_.outputs(call_) > 1) shape.push_back(loss_.outputs(call_));
    shape.append(rows_.begin(), rows_.end());
    return shape;
  }

  const Call& call_;
  const RowLossDefinition& loss_;
  TensorList operands_;
  at::ScalarType type_;
  Dimensions rows_;
  bool split_ = false;
  Tensors taken_;
  Tensor grad_output_;
};

// Without rows: what the reference makes of nothing.
Tensor loss_of_nothing(const RowLossDefinition& loss, const Call& call, TensorList operands) {
  loss.check(call, operands);
  const auto rows = loss.without_row(operands[0].sizes());
  TORCH_CHECK_INDEX(!loss.has_labels || c10::multiply_integers(rows) == 0, call.name(), ": ",
                    loss.operand_names[0], " ", operands[0].sizes(), " has no classes");
  Stack stack;
  put_call(call, operands, stack);
  call_operator(loss, "_reference", stack);
  return stack[0].toTensor();
}

Tensors zeros(const RowLossDefinition& loss, TensorList operands, const Wanted& wanted) {
  Tensors gradients(loss.gradients);
  for (size_t k = 0; k < gradients.size(); ++k)
    if (wanted[k]) gradients[k] = at::zeros_like(operands[k]);
  return gradients;
}

Tensors as_inputs(Tensors gradients, TensorList operands) {
  for (size_t k = 0; k < gradients.size(); ++k)
    if (gradients[k].defined()) gradients[k] = as_input(gradients[k], operands[k]);
  return gradients;
}

}  // namespace

Tensor as_input(const Tensor& gradient, const Tensor& operand) {
  const bool dense = operand.is_non_overlapping_and_dense();
  const Tensor like =
      dense ? operand : at::empty_like(operand, operand.options().device(at::kMeta));
  if (gradient.scalar_type() == operand.scalar_type() && gradient.strides() == like.strides())
    return gradient;
  return at::empty_like(operand).copy_(gradient);
}

bool RowLossDefinition::pays_ahead(const Call&, TensorList operands) const {
  return operands[0].numel() > 0 && kernels_in(kernels, name, operands[0].device()).reads;
}

LossAndGradients RowLossDefinition::compute_loss(const Call& call, TensorList operands,
                                                 const Wanted& wanted,
                                                 Expectation* expectation) const {
  if (operands[0].numel() == 0)
    return {loss_of_nothing(*this, call, operands), zeros(*this, operands, wanted)};
  RowWalk walk(*this, call, operands);
  LossAndGradients result{walk.value(wide), walk.gradients(wanted)};
  if (walk.arguments.wants_gradient()) walk.expect(expectation, Guess::write);
  walk.run();
  return result;
}

Tensor RowLossDefinition::compute_part(const Call& call, TensorList operands) const {
  TORCH_CHECK_VALUE(call.reduction == Reduction::none && operands[0].numel() > 0, call.name(),
                    ": a part has values of each row and some classes");
  RowWalk walk(*this, call, operands);
  const Tensor values = walk.values_of_part();
  walk.run();
  return values;
}

Tensor RowLossDefinition::compute_loss_in_place(const Call& call, TensorList operands) const {
  const Tensor& input = operands[0];
  if (operands[0].numel() == 0) {
    const Tensor loss = loss_of_nothing(*this, call, operands);
    return loss.to(c10::promoteTypes(loss.scalar_type(), at::kFloat));
  }
  at::assert_no_internal_overlap(input);
  RowWalk walk(*this, call, operands);
  const Tensor loss = walk.value(true);
  if (walk.reads_in_place()) {
    walk.into({input});
    walk.run();
  } else {
    const Tensors gradients = walk.gradients({true});
    walk.run();
    input.copy_(gradients[0]);
  }
  return loss;
}

Tensors RowLossDefinition::compute_gradients(const Call& call, const Tensor& grad_output,
                                             TensorList operands, const Wanted& wanted,
                                             Expectation* expectation) const {
  if (operands[0].numel() == 0) return zeros(*this, operands, wanted);
  RowWalk walk(*this, call, operands);
  walk.take_grad_output(grad_output);
  Tensors gradients = walk.gradients(wanted);
  if (!walk.arguments.wants_gradient()) return gradients;
  if (call.reduction != Reduction::none) walk.expect(expectation, Guess::learn);
  walk.run();
  return as_inputs(std::move(gradients), operands);
}

Tensors RowLossDefinition::check_gradients(const Call& call, const Tensor& grad_output,
                                           TensorList operands, Tensors gradients,
                                           Expectation* expectation) const {
  RowWalk walk(*this, call, operands);
  walk.take_grad_output(grad_output);
  walk.into(gradients);
  walk.expect(expectation, Guess::check);
  walk.run();
  return as_inputs(std::move(gradients), operands);
}

}  // namespace losscli
