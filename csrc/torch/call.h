// One call of a loss, of elements or of rows, as its operators take it, and what they ask of the
// loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "elementwise/kernels.h"
#include "rows/kernels.h"

namespace losscli {

enum class Reduction { none, mean, sum };
constexpr const char* kReductions[] = {"none", "mean", "sum"};

// Operands in the order of the schema, undefined where one is left out; or their gradients.
using Tensors = c10::SmallVector<at::Tensor, kMostOperands>;
using TensorList = at::ArrayRef<at::Tensor>;
using Wanted = std::array<bool, kMostOperands>;
static_assert(kMostRows <= kMostOperands);

inline bool is_any(const Wanted& wanted) {
  return std::find(wanted.begin(), wanted.end(), true) != wanted.end();
}

struct LossAndGradients {
  at::Tensor loss;
  Tensors gradients;  // one for each operand that has one, undefined where none was written
};

struct Definition;

// One loss with its settings, as an operator was called.
struct Call {
  const Definition* loss = nullptr;
  std::array<double, std::max(kMostParameters, kMostRowParameters)> parameters{};
  Reduction reduction = Reduction::mean;
  Strategy strategy = Strategy::single_pass;  // of losses of elements
  int64_t site = 0;  // calls of one site share what they expect of the upstream gradient

  const char* name() const;
};

// A loss as its operators were defined: `losscli::NAME(Tensor..., str reduction, float..., ...)`,
// and what it computes on tensors of one real device, below the dispatcher. Never destroyed.
struct Definition {
  std::string name;
  std::vector<std::string> operand_names;
  std::vector<std::string> parameter_names;
  size_t gradients = 0;  // operands that have one: the first
  // Whether derivatives that the kernels lack are composed of PyTorch's operators, and for which
  // operands all are.
  bool composes = false;
  std::vector<size_t> composed;

  size_t operands() const { return operand_names.size(); }
  size_t parameters() const { return parameter_names.size(); }

  // Whether the kernels of a call are attached.
  virtual bool has_kernels(const Call& call, const at::Device& device) const = 0;

  // The dtype that the operands are promoted to.
  virtual at::ScalarType type_of(TensorList operands) const = 0;

  // Whether it may pay to write gradients ahead.
  virtual bool pays_ahead(const Call& call, TensorList operands) const = 0;

  // Whether a pass that may write gradients adds up the loss in another order than one that may
  // not. Then the passes of a loss are all of one kind, whether guesses fail or not.
  virtual bool adds_otherwise_ahead() const { return false; }

  // The loss, and in the same pass the wanted gradients, for the upstream gradient that an
  // expectation holds, or for 1. Of a loss of elements only those of operands that have an element
  // for each of the loss; that of an operand that is repeated is left undefined. Throws TypeError,
  // ValueError, RuntimeError where no loss takes these tensors or parameters.
  virtual LossAndGradients compute_loss(const Call& call, TensorList operands, const Wanted& wanted,
                                        Expectation* expectation) const = 0;

  // The wanted gradients for any upstream gradient, from which an expectation learns if there is
  // one.
  virtual Tensors compute_gradients(const Call& call, const at::Tensor& grad_output,
                                    TensorList operands, const Wanted& wanted,
                                    Expectation* expectation = nullptr) const = 0;

  // Makes the gradients that compute_loss wrote right for the upstream gradient, in place: nothing
  // to do where it is the expected one, which the device sees by itself. Returns them as their
  // operands have them.
  virtual Tensors check_gradients(const Call& call, const at::Tensor& grad_output,
                                  TensorList operands, Tensors gradients,
                                  Expectation* expectation) const = 0;
};

inline const char* Call::name() const { return loss->name.c_str(); }

// Throws ValueError for another word.
Reduction parse_reduction(std::string_view name);
Strategy parse_strategy(std::string_view name);

}  // namespace losscli
