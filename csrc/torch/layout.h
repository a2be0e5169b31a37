// How tensors that broadcast are walked as one: which order of dimensions, and which form a space
// and its operands take in it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <string>

#include "core/operand.h"

namespace losscli {

using Dimensions = c10::SmallVector<int64_t, 5>;

// How operands broadcast: their common shape, and the order in which its dimensions are walked.
class Layout {
 public:
  // Throws (RuntimeError) where the shapes do not broadcast. `names` tells them apart in the error.
  Layout(at::ArrayRef<at::Tensor> operands, const std::string* names);

  int64_t size() const { return size_; }
  at::IntArrayRef shape() const { return shape_; }

  // Whether an operand has an element of its own for each of the space.
  bool is_full(const at::Tensor& operand) const { return operand.numel() == size_; }

  // A fresh tensor of the broadcast shape or of one operand's, dense in the order of the walk, as
  // PyTorch's own elementwise operators lay out their result.
  at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options) const;

  // Collapses all dimensions, as seen by these tensors, into `space`, and fills one operand for
  // each tensor. False where more dimensions are left than a space has. With `shared` they are in
  // two groups: first those along which it has elements of its own, `kept` of them, then those that
  // repeat it.
  bool collapse(at::ArrayRef<at::Tensor> tensors, Space& space, Operand* operands,
                const at::Tensor* shared = nullptr, int32_t* kept = nullptr) const;

  // Whether the fastest of all dimensions is one that repeats an operand.
  bool repeats_fastest(const at::Tensor& shared) const;

 private:
  bool is_own(const at::Tensor& shared, int64_t d) const;
  Dimensions expanded_strides(const at::Tensor& tensor) const;
  bool append(at::IntArrayRef order, at::ArrayRef<Dimensions> strides, Space& space,
              Operand* operands) const;

  Dimensions shape_;
  Dimensions order_;  // dimensions of shape_, the fastest first
  int64_t size_ = 1;
};

// Throws (TypeError) where no operand may have this dtype.
DType dtype_of(at::ScalarType type);

}  // namespace losscli
