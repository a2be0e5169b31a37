// Losses over rows that are functors, on tensors of one real device, below the dispatcher: checks,
// strides, launch.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "torch/registry.h"

namespace losscli {

// One functor with its settings, as an operator was called.
struct FunctorCall {
  FunctorLoss* loss = nullptr;
  Reduction reduction = Reduction::mean;
  std::array<double, kMostRowParameters> parameters{};
  int64_t site = 0;  // calls of one site share what they expect of the incoming gradient

  const char* name() const { return loss->name.c_str(); }
  // Values of a row.
  int outputs() const {
    return loss->doubling >= 0 && parameters[static_cast<size_t>(loss->doubling)] != 0 ? 2 : 1;
  }
};

// In the order of the schema, undefined where one is left out. Those that are rows come first.
using FunctorOperands = c10::SmallVector<at::Tensor, 5>;
using FunctorGradients = std::array<at::Tensor, kMostRows>;
using FunctorWanted = std::array<bool, kMostRows>;

inline bool is_any(const FunctorWanted& wanted) { return wanted[0] || wanted[1] || wanted[2]; }

// Those that are there.
FunctorOperands defined(const FunctorOperands& operands);

bool has_kernels(const FunctorLoss& loss, const at::Device& device);

// Whether there are no rows or nothing in them.
bool is_empty(const FunctorOperands& operands);

// The dtype that the operands are promoted to.
at::ScalarType type_of(const FunctorCall& call, const FunctorOperands& operands);

struct FunctorResult {
  at::Tensor loss;
  FunctorGradients gradients;  // in the dtype of the loss; undefined where not wanted
};

// The loss, and in the same pass the gradients that are wanted for the incoming gradient that an
// expectation holds, or for 1.
FunctorResult compute_functor(const FunctorCall& call, const FunctorOperands& operands,
                              const FunctorWanted& wanted, Expectation* expectation);

// The gradients that are wanted for any incoming gradient, from which an expectation learns if
// there is one.
FunctorGradients compute_functor_gradients(const FunctorCall& call, const at::Tensor& grad_output,
                                           const FunctorOperands& operands,
                                           const FunctorWanted& wanted,
                                           Expectation* expectation = nullptr);

// Makes the gradients that compute_functor wrote right for the incoming gradient, in place: nothing
// to do where it is the expected one, which the device sees by itself.
void check_functor_gradients(const FunctorCall& call, const at::Tensor& grad_output,
                             const FunctorOperands& operands, const FunctorGradients& gradients,
                             Expectation* expectation);

}  // namespace losscli
