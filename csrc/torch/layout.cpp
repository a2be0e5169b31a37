#include "torch/layout.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>

#include "torch/fresh.h"

namespace losscli {

namespace {

// What an operand with a value for each row lacks, to follow a message.
std::string of_each_row(const std::string& name, at::IntArrayRef sizes, at::IntArrayRef shape) {
  const bool lacks_last = sizes.size() + 1 == shape.size() && sizes == shape.slice(0, sizes.size());
  return lacks_last ? c10::str("; write ", name, ".unsqueeze(-1) for one value a row") : "";
}

}  // namespace

Layout::Layout(at::ArrayRef<at::Tensor> operands, const std::string* names) {
  const auto first = operands[0].sizes();
  shape_.assign(first.begin(), first.end());
  bool plain = operands[0].is_contiguous();
  for (size_t i = 1; i < operands.size(); ++i) {
    const auto sizes = operands[i].sizes();
    plain = plain && sizes == first && operands[i].is_contiguous();
    if (sizes == at::IntArrayRef(shape_)) continue;
    TORCH_CHECK(at::are_expandable(shape_, sizes), names[0], " of shape ", first, " and ", names[i],
                " of shape ", sizes,
                " do not broadcast: counted from the last, each pair of dimensions must be equal "
                "or hold a 1",
                of_each_row(names[i], sizes, shape_));
    const auto wider = at::infer_size_dimvector(shape_, sizes);
    shape_.assign(wider.begin(), wider.end());
  }
  const auto dimensions = static_cast<int64_t>(shape_.size());
  for (int64_t d = dimensions - 1; d >= 0; --d) {
    order_.push_back(d);
    size_ *= shape_[d];
  }
  if (plain) return;

  // PyTorch's rule (TensorIterator): an insertion sort by stride, the first operand that tells
  // two dimensions apart deciding.
  c10::SmallVector<Dimensions, kMostOperands> strides;
  for (const auto& operand : operands) strides.push_back(expanded_strides(operand));
  const auto compare = [&](int64_t left, int64_t right) {
    for (const auto& operand : strides) {
      if (operand[left] == 0 || operand[right] == 0) continue;
      if (operand[left] != operand[right]) return operand[left] < operand[right] ? -1 : 1;
      if (shape_[left] > shape_[right]) return 1;
    }
    return 0;
  };
  for (int64_t i = 1; i < dimensions; ++i) {
    int64_t moving = i;
    for (int64_t other = i - 1; other >= 0; --other) {
      const int order = compare(order_[other], order_[moving]);
      if (order < 0) break;
      if (order > 0) {
        std::swap(order_[other], order_[moving]);
        moving = other;
      }
    }
  }
}

Dimensions Layout::expanded_strides(const at::Tensor& tensor) const {
  const size_t missing = shape_.size() - tensor.dim();
  Dimensions strides(shape_.size(), 0);
  for (size_t d = missing; d < shape_.size(); ++d) {
    const bool repeated = tensor.size(d - missing) == 1 && shape_[d] != 1;
    strides[d] = repeated ? 0 : tensor.stride(d - missing);
  }
  return strides;
}

at::Tensor Layout::empty(at::IntArrayRef sizes, const at::TensorOptions& options) const {
  const auto missing = static_cast<int64_t>(shape_.size() - sizes.size());
  Dimensions strides(sizes.size(), 1);
  int64_t stride = 1;
  for (const int64_t d : order_) {
    if (d < missing) continue;
    strides[d - missing] = stride;
    stride *= std::max<int64_t>(sizes[d - missing], 1);
  }
  return fresh_empty(sizes, strides, options);
}

bool Layout::append(at::IntArrayRef order, at::ArrayRef<Dimensions> strides, Space& space,
                    Operand* operands) const {
  const int32_t begin = space.dimensions;
  for (const int64_t d : order) {
    if (shape_[d] == 1) continue;
    const int32_t last = space.dimensions - 1;
    bool merges = last >= begin;
    for (size_t k = 0; merges && k < strides.size(); ++k)
      merges = strides[k][d] == operands[k].strides[last] * space.sizes[last];
    if (merges) {
      space.sizes[last] *= shape_[d];
      continue;
    }
    if (space.dimensions == kMostDimensions) return false;
    for (size_t k = 0; k < strides.size(); ++k)
      operands[k].strides[space.dimensions] = strides[k][d];
    space.sizes[space.dimensions++] = shape_[d];
  }
  return true;
}

bool Layout::is_own(const at::Tensor& shared, int64_t d) const {
  const int64_t missing = static_cast<int64_t>(shape_.size()) - shared.dim();
  return d >= missing && shared.size(d - missing) != 1;
}

bool Layout::repeats_fastest(const at::Tensor& shared) const {
  for (const int64_t d : order_)
    if (shape_[d] != 1) return !is_own(shared, d);
  return false;
}

bool Layout::collapse(at::ArrayRef<at::Tensor> tensors, Space& space, Operand* operands,
                      const at::Tensor* shared, int32_t* kept) const {
  space = Space();
  space.size = size_;
  space.dimensions = 0;
  c10::SmallVector<Dimensions, kMostOperands + 1> strides;
  for (size_t k = 0; k < tensors.size(); ++k) {
    operands[k] = Operand();
    operands[k].data = tensors[k].const_data_ptr();
    operands[k].dtype = dtype_of(tensors[k].scalar_type());
    strides.push_back(expanded_strides(tensors[k]));
  }
  if (shared) {
    Dimensions own, repeated;
    for (const int64_t d : order_) (is_own(*shared, d) ? own : repeated).push_back(d);
    if (!append(own, strides, space, operands)) return false;
    *kept = space.dimensions;
    if (!append(repeated, strides, space, operands)) return false;
  } else if (!append(order_, strides, space, operands)) {
    return false;
  }
  if (space.dimensions > 0) return true;
  space.dimensions = 1;
  space.sizes[0] = size_;
  for (size_t k = 0; k < tensors.size(); ++k) operands[k].strides[0] = 1;
  return true;
}

DType dtype_of(at::ScalarType type) {
  // In the order of DType.
  constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf,  at::kBFloat16,
                                       at::kLong,  at::kInt,    at::kShort, at::kChar,
                                       at::kByte,  at::kBool};
  const auto* const found = std::find(std::begin(kTypes), std::end(kTypes), type);
  TORCH_CHECK_TYPE(found != std::end(kTypes), "an operand of ", type,
                   " is not supported; convert it with .float()");
  return static_cast<DType>(found - kTypes);
}

}  // namespace losscli
