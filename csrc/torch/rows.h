// Losses over rows on tensors of one real device, below the dispatcher: checks, strides, launch.
#pragma once

#include "torch/call.h"
#include "torch/registry.h"

namespace losscli {

// What an operand of a loss over rows is, as `roles` has it. Those that are rows come first, among
// them those whose gradient the kernels give. The gradients of the roles in capitals are composed
// of PyTorch's operators. Weights and masks may be left out.
constexpr char kRowRole = 'r';
constexpr char kComposedRowRole = 'R';
constexpr char kLabelRole = 'l';   // the number of a class for each row
constexpr char kTargetRole = 't';  // another number for each row
constexpr char kMaskRole = 'm';    // whether a row counts
constexpr char kWeightRole = 'w';  // a number for each class
constexpr char kComposedWeightRole = 'W';

struct RowLossDefinition final : Definition {
  std::string roles;  // of each operand
  size_t rows = 0;    // operands that are rows
  bool has_labels = false;
  bool second_dimension = false;  // rows lie along dimension 1, as classes do; else along the last
  bool wide = false;              // whether 16 bits give a loss in float32
  int doubling = -1;  // the parameter that says how many more values a row has; -1: none
  Attached<RowKernels> kernels{};

  bool is_row(size_t k) const { return k < rows; }
  bool is_weight(size_t k) const {
    return roles[k] == kWeightRole || roles[k] == kComposedWeightRole;
  }
  // The dimension along which the rows of a tensor lie.
  int64_t row_dimension(int64_t dimensions) const {
    return second_dimension && dimensions > 1 ? 1 : dimensions - 1;
  }
  // The sizes or strides of all dimensions of a tensor but that of a row.
  c10::SmallVector<int64_t, 5> without_row(at::IntArrayRef of) const {
    c10::SmallVector<int64_t, 5> others(of.begin(), of.end());
    if (!of.empty()) others.erase(others.begin() + row_dimension(others.size()));
    return others;
  }
  // Values of a row.
  int outputs(const Call& call) const {
    if (doubling < 0) return 1;
    return 1 + static_cast<int>(call.parameters[static_cast<size_t>(doubling)]);
  }

  bool has_kernels(const Call&, const at::Device& device) const override {
    return kernels.on(device) != nullptr;
  }
  // Of the rows, and without class indices of the weight.
  at::ScalarType type_of(TensorList operands) const override;
  bool pays_ahead(const Call&, TensorList operands) const override;
  // More threads share a row that is read again for its gradient.
  bool adds_otherwise_ahead() const override { return true; }
  LossAndGradients compute_loss(const Call& call, TensorList operands, const Wanted& wanted,
                                Expectation* expectation) const override;
  Tensors compute_gradients(const Call& call, const at::Tensor& grad_output, TensorList operands,
                            const Wanted& wanted, Expectation* expectation) const override;
  Tensors check_gradients(const Call& call, const at::Tensor& grad_output, TensorList operands,
                          Tensors gradients, Expectation* expectation) const override;

  // The values of a part of each row of a divergence, (kDivergenceNumbers, rows), in float32 at
  // least.
  at::Tensor compute_part(const Call& call, TensorList operands) const;

  // The loss, of 16 bits in float32, with the gradient of the first operand written over it.
  at::Tensor compute_loss_in_place(const Call& call, TensorList operands) const;

  // Throws TypeError, ValueError, RuntimeError where no loss takes these tensors. Returns the dtype
  // that they are promoted to.
  at::ScalarType check(const Call& call, TensorList operands) const;
};

// A gradient as it leaves: in the operand's dtype, with the strides of empty_like(operand).
at::Tensor as_input(const at::Tensor& gradient, const at::Tensor& operand);

}  // namespace losscli
