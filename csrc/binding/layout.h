// How two tensors that broadcast are walked as one: which order of dimensions, which form each
// operand takes in it, and where a copy cannot be avoided.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>

#include "elementwise.h"

namespace losscli {

class Layout {
 public:
  using Dimensions = c10::SmallVector<int64_t, 5>;

  // Throws (RuntimeError) where the shapes do not broadcast.
  Layout(const at::Tensor& input, const at::Tensor& target);

  int64_t size() const { return size_; }
  at::IntArrayRef shape() const { return shape_; }

  // Those of a tensor of the broadcast shape, dense in the order of the walk, as PyTorch's own
  // elementwise ops would give them to their result.
  Dimensions strides() const;

  // A fresh tensor with these strides.
  at::Tensor empty(const at::TensorOptions& options) const;

  // A fresh tensor of one operand's shape, dense in the order of the walk.
  at::Tensor empty_for(const at::Tensor& operand, const at::TensorOptions& options) const;

  // The operand's form in the walk, or none where only a copy would have one.
  std::optional<Operand> form(const at::Tensor& operand) const;

  // A copy of the operand in the broadcast shape, flat in the walk.
  at::Tensor materialize(const at::Tensor& operand) const;

 private:
  Dimensions expanded_strides(const at::Tensor& operand) const;

  Dimensions shape_;
  Dimensions order_;  // dimensions of shape_, the fastest first
  int64_t size_ = 1;
};

}  // namespace losscli
