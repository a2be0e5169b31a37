// What an incoming gradient must be like.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/registry.h"

namespace losscli {

// Throws (RuntimeError) for one that does not belong to a loss of this shape; `shape` is that of
// the loss without a reduction.
inline void check_incoming(const char* loss, Reduction reduction, at::IntArrayRef shape,
                           const at::Tensor& grad_output, const at::Device& device) {
  TORCH_CHECK(grad_output.device() == device, loss,
              ": the incoming gradient must be on the operands' device ", device, ", but is on ",
              grad_output.device());
  if (reduction != Reduction::none) {
    TORCH_CHECK(grad_output.numel() == 1, loss,
                ": the incoming gradient of a reduced loss must be one element, but has shape ",
                grad_output.sizes());
  } else {
    TORCH_CHECK(grad_output.sizes() == shape, loss,
                ": the incoming gradient must have the loss's shape ", shape, ", but has shape ",
                grad_output.sizes());
  }
}

}  // namespace losscli
