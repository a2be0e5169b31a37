#include "layout.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

namespace losscli {
namespace {

bool broadcastable(at::IntArrayRef a, at::IntArrayRef b) {
  const size_t shared = std::min(a.size(), b.size());
  for (size_t i = 1; i <= shared; ++i) {
    const int64_t left = a[a.size() - i], right = b[b.size() - i];
    if (left != right && left != 1 && right != 1) return false;
  }
  return true;
}

}  // namespace

Layout::Layout(const at::Tensor& input, const at::Tensor& target) {
  const auto a = input.sizes(), b = target.sizes();
  if (a == b) {
    shape_.assign(a.begin(), a.end());
  } else {
    TORCH_CHECK(broadcastable(a, b), "input of shape ", a, " and target of shape ", b,
                " do not broadcast: counted from the last, each pair of dimensions must be equal "
                "or hold a 1");
    const auto shape = at::infer_size_dimvector(a, b);
    shape_.assign(shape.begin(), shape.end());
  }
  const auto dimensions = static_cast<int64_t>(shape_.size());
  for (int64_t d = dimensions - 1; d >= 0; --d) {
    order_.push_back(d);
    size_ *= shape_[d];
  }
  if (a == b && input.is_contiguous() && target.is_contiguous()) return;

  // PyTorch's rule (TensorIterator): an insertion sort by stride, the first operand that tells
  // two dimensions apart deciding.
  const Dimensions strides[] = {expanded_strides(input), expanded_strides(target)};
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

Layout::Dimensions Layout::expanded_strides(const at::Tensor& operand) const {
  const size_t missing = shape_.size() - operand.dim();
  Dimensions strides(shape_.size(), 0);
  for (size_t d = missing; d < shape_.size(); ++d) {
    const bool repeated = operand.size(d - missing) == 1 && shape_[d] != 1;
    strides[d] = repeated ? 0 : operand.stride(d - missing);
  }
  return strides;
}

Layout::Dimensions Layout::strides() const {
  Dimensions strides(shape_.size(), 1);
  int64_t stride = 1;
  for (const int64_t d : order_) {
    strides[d] = stride;
    stride *= std::max<int64_t>(shape_[d], 1);
  }
  return strides;
}

at::Tensor Layout::empty(const at::TensorOptions& options) const {
  return at::empty_strided(shape_, strides(), options);
}

at::Tensor Layout::empty_for(const at::Tensor& operand, const at::TensorOptions& options) const {
  const int64_t missing = static_cast<int64_t>(shape_.size()) - operand.dim();
  Dimensions strides(operand.dim(), 1);
  int64_t stride = 1;
  for (const int64_t d : order_) {
    if (d < missing) continue;
    strides[d - missing] = stride;
    stride *= std::max<int64_t>(operand.size(d - missing), 1);
  }
  return at::empty_strided(operand.sizes(), strides, options);
}

std::optional<Operand> Layout::form(const at::Tensor& operand) const {
  const Dimensions strides = expanded_strides(operand);
  Operand form{operand.const_data_ptr(), 1, 1};
  bool ended = false;  // only repeats may follow
  for (const int64_t d : order_) {
    if (shape_[d] == 1) continue;
    if (strides[d] == 0) {
      if (form.period == 1) {
        form.inner *= shape_[d];
      } else {
        ended = true;
      }
    } else {
      if (ended || strides[d] != form.period) return std::nullopt;
      form.period *= shape_[d];
    }
  }
  // A scalar repeats however one looks at it.
  if (form.period == 1) form.inner = 1;
  return form;
}

at::Tensor Layout::materialize(const at::Tensor& operand) const {
  at::Tensor copy = empty(operand.options());
  copy.copy_(operand);
  return copy;
}

}  // namespace losscli
