// Forward mode: the tangents of what the operators return, from those of their operands. All are
// computed by the operators themselves and so are differentiable, batched and traced as these are.
#pragma once

#include "torch/call.h"

namespace losscli {

// Whether one of these is a dual tensor of forward mode.
bool have_tangents(TensorList tensors);

// Attaches the tangent of a loss to it: the sum over all operands of gradient times tangent.
void set_loss_tangent(const Call& call, TensorList operands, const at::Tensor& loss);

// Attaches the tangents of gradients to them: the gradients for grad_output's tangent, and the
// product of the Hessian with the operands' tangents.
void set_gradient_tangents(const Call& call, const at::Tensor& grad_output, TensorList operands,
                           const Wanted& wanted, TensorList gradients);

}  // namespace losscli
