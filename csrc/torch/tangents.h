// Forward mode: the tangents of what the operators return, from those of their operands. All are
// computed by the operators themselves and so are differentiable, batched and traced as these are.
#pragma once

#include "torch/compute.h"

namespace losscli {

// Whether one of these is a dual tensor of forward mode.
bool have_tangents(at::ArrayRef<at::Tensor> tensors);

// Attaches the tangent of a loss to it: the sum over all operands of gradient times tangent.
void set_loss_tangent(const LossCall& call, at::ArrayRef<at::Tensor> operands,
                      const at::Tensor& loss);

// Attaches the tangents of gradients to them: the gradients for grad_output's tangent, and the
// product of the Hessian with the operands' tangents.
void set_gradient_tangents(const LossCall& call, const at::Tensor& grad_output,
                           at::ArrayRef<at::Tensor> operands, const Wanted& wanted,
                           at::ArrayRef<at::Tensor> gradients);

}  // namespace losscli
