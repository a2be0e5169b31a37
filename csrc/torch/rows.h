// Losses over rows on tensors of one real device, below the dispatcher: checks, strides, launch.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch/registry.h"

namespace losscli {

// One loss over rows with its settings, as an operator was called.
struct RowCall {
  RowLossDefinition* loss = nullptr;
  Reduction reduction = Reduction::mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  double temperature = 1;
  double softcap = 0;
  double z_loss = 0;
  int64_t site = 0;  // calls of one site share what they expect of the incoming gradient

  const char* name() const { return loss->name.c_str(); }
};

// What a loss over rows takes.
struct RowOperands {
  at::Tensor input;   // (C), (N, C) or (N, C, d1, ...): logits
  at::Tensor target;  // class numbers in the shape of the rows, or a probability for each logit
  at::Tensor weight;  // (C), undefined for none

  // As in PyTorch, whose function decides by the shapes.
  bool has_probabilities() const { return input.sizes() == target.sizes(); }
  bool is_empty() const { return input.numel() == 0; }

  // The tensors that are there, the first always the input; for messages the names of all.
  c10::SmallVector<at::Tensor, 3> tensors() const {
    c10::SmallVector<at::Tensor, 3> all{input, target};
    if (weight.defined()) all.push_back(weight);
    return all;
  }
};

constexpr const char* kRowOperandNames[] = {"input", "target", "weight"};

// Whether the kernels of a loss are attached.
bool has_kernels(const RowLossDefinition& loss, const at::Device& device);

// Throws where PyTorch's own function does, and ValueError for a setting out of its domain.
void check_call(const RowCall& call, const RowOperands& operands);

// The dtype of the loss: that of the input, or what it and the probabilities are promoted to.
at::ScalarType type_of(const RowOperands& operands);

struct RowResult {
  at::Tensor loss;
  at::Tensor gradient;  // of the input, in the dtype of the loss; undefined where not wanted
};

// The loss, and in the same pass, if `wanted`, the gradient of the input for the incoming gradient
// that an expectation holds, or for 1.
RowResult compute_rows(const RowCall& call, const RowOperands& operands, bool wanted,
                       Expectation* expectation);

// The same, with the gradient written over the input.
at::Tensor compute_rows_in_place(const RowCall& call, const RowOperands& operands);

// The gradient of the input for any incoming gradient, from which an expectation learns if there is
// one.
at::Tensor compute_row_gradient(const RowCall& call, const at::Tensor& grad_output,
                                const RowOperands& operands, Expectation* expectation = nullptr);

// Makes the gradient that compute_rows wrote right for the incoming gradient, in place: nothing to
// do where it is the expected one, which the device sees by itself.
void check_row_gradient(const RowCall& call, const at::Tensor& grad_output,
                        const RowOperands& operands, const at::Tensor& gradient,
                        Expectation* expectation);

// A gradient as it leaves: in the input's dtype, with the strides of empty_like(input).
at::Tensor as_input(const at::Tensor& gradient, const at::Tensor& input);

}  // namespace losscli
