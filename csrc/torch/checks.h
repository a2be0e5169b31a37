// What the operands of every loss and an upstream gradient must be like.
#pragma once

#include "torch/call.h"

namespace losscli {

// Whether a loss is computed in this dtype.
inline bool is_computable(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

// What makes a dtype computable, to follow a message.
inline const char* conversion(at::ScalarType type) {
  return c10::isComplexType(type)
             ? "; torch.view_as_real() returns the real and the imaginary parts as real numbers"
             : "; convert with .float()";
}

// Throws TypeError for an operand that no call leaves out: the dispatcher takes None for it.
inline void check_given(const Call& call, TensorList operands, size_t k) {
  TORCH_CHECK_TYPE(operands[k].defined(), call.name(), ": ", call.loss->operand_names[k],
                   " must be a torch.Tensor, but is None");
}

// Throws RuntimeError, NotImplementedError for operands of several devices, or not dense.
inline void check_places(const Call& call, TensorList operands) {
  const auto& names = call.loss->operand_names;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (!operands[k].defined()) continue;
    TORCH_CHECK(operands[k].device() == operands[0].device(), call.name(), ": ", names[0], " and ",
                names[k], " must be on one device, but are on ", operands[0].device(), " and ",
                operands[k].device(), "; move one with .to()");
    TORCH_CHECK_NOT_IMPLEMENTED(operands[k].layout() == at::kStrided, call.name(), ": ", names[k],
                                " must be a dense tensor, but is ", operands[k].layout(),
                                "; convert it with .to_dense()");
  }
}

// Throws (RuntimeError) for one that does not belong to a loss of this shape; `shape` is that of
// the loss without a reduction.
inline void check_incoming(const Call& call, at::IntArrayRef shape, const at::Tensor& grad_output,
                           const at::Device& device) {
  TORCH_CHECK(grad_output.device() == device, call.name(),
              ": grad_output must be on the operands' device ", device, ", but is on ",
              grad_output.device());
  if (call.reduction != Reduction::none) {
    TORCH_CHECK(grad_output.numel() == 1, call.name(),
                ": grad_output of a reduced loss must be one element, but has shape ",
                grad_output.sizes());
  } else {
    TORCH_CHECK(grad_output.sizes() == shape, call.name(),
                ": grad_output must have the loss's shape ", shape, ", but has shape ",
                grad_output.sizes());
  }
}

}  // namespace losscli
