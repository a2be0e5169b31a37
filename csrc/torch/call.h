// One call of a loss, of elements or of rows, as its operators take it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

#include "torch/registry.h"

namespace losscli {

// One loss with its settings, as an operator was called.
template <typename Loss, size_t kParameters>
struct CallOf {
  using Definition = Loss;

  Definition* loss = nullptr;
  std::array<double, kParameters> parameters{};
  Reduction reduction = Reduction::mean;
  int64_t site = 0;  // calls of one site share what they expect of the incoming gradient

  const char* name() const { return loss->name.c_str(); }
};

// Operands in the order of the schema, undefined where one is left out; or their gradients.
using Tensors = c10::SmallVector<at::Tensor, kMostOperands>;
using Wanted = std::array<bool, kMostOperands>;
static_assert(kMostRows <= kMostOperands);

struct LossAndGradients {
  at::Tensor loss;
  Tensors gradients;  // one for each operand that has one, undefined where none was written
};

// Throws ValueError for another word.
Reduction parse_reduction(std::string_view name);

}  // namespace losscli
