// The losses on tensors of one real device, below the dispatcher: checks, layout, launch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>
#include <tuple>

#include "elementwise.h"

namespace losscli {

enum class Reduction { none, mean, sum };

// One loss with its settings, as an op was called.
struct LossCall {
  LossId id;
  const char* name;
  std::array<double, kMaxParameters> parameters{};
  Reduction reduction;
  Strategy strategy = Strategy::single_pass;
};

// Throws ValueError for another word.
Reduction parse_reduction(std::string_view name);
Strategy parse_strategy(std::string_view name);

// Throws TypeError, RuntimeError where no loss takes these tensors.
void check_operands(const LossCall& call, const at::Tensor& input, const at::Tensor& target);

struct LossAndGradients {
  at::Tensor loss;
  at::Tensor grad_input;   // undefined where not asked for
  at::Tensor grad_target;  // undefined where not asked for
};

// The loss, and in the same pass the wanted gradients for an incoming gradient of 1 (of ones), each
// in the broadcast shape; one whose operand is repeated is left undefined.
LossAndGradients compute_loss(const LossCall& call, const at::Tensor& input,
                              const at::Tensor& target, bool want_input, bool want_target);

// A gradient of the broadcast shape, as its operand has it: without leading ones, in its dtype.
at::Tensor as_operand(const at::Tensor& gradient, const at::Tensor& operand);

// The loss and the gradient of its sum for the input.
std::tuple<at::Tensor, at::Tensor> compute_loss_with_grad(const LossCall& call,
                                                          const at::Tensor& input,
                                                          const at::Tensor& target);

// The gradients for any incoming gradient; undefined where not asked for.
std::tuple<at::Tensor, at::Tensor> compute_gradients(const LossCall& call,
                                                     const at::Tensor& grad_output,
                                                     const at::Tensor& input,
                                                     const at::Tensor& target, bool want_input,
                                                     bool want_target);

// Makes the gradients that compute_loss wrote right for the incoming gradient, in place: nothing
// to do where it is 1, which the device sees by itself.
void rescale_gradients(const LossCall& call, const at::Tensor& grad_output, const at::Tensor& input,
                       const at::Tensor& target, const at::Tensor& grad_input,
                       const at::Tensor& grad_target);

// The gradients of the gradients' scalar product with (grad_grad_input, grad_grad_target) for
// grad_output, input and target.
std::tuple<at::Tensor, at::Tensor, at::Tensor> compute_double_backward(
    const LossCall& call, const at::Tensor& grad_grad_input, const at::Tensor& grad_grad_target,
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& target);

}  // namespace losscli
