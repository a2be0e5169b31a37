// Cross entropy of logits x and the number t of a class or a probability of each class.
//
// The loss of a row of K classes with weights w is, with x after temperature and softcap, lse =
// log(sum of exp(x_c)) and smoothing s,
//   for a number t:        (1 - s) * w_t * (lse - x_t) + s / K * sum of w_c * (lse - x_c)
//   for probabilities p:   sum of w_c * (p_c * (1 - s) + s / K) * (lse - x_c)
// and, added to both, z_loss * lse * lse. A mean over numbers is over the weights of the rows'
// classes, those of ignored rows left out; over probabilities it is over the rows.
#pragma once

#include <cstdint>

#include "losses/rows/loss.h"

namespace losscli {

template <typename Real>
struct cross_entropy : RowLoss<1, 5> {
  static constexpr bool is_cross_entropy = true;
  static constexpr bool logits = true;
  static constexpr bool labelled = true;
  static constexpr bool mean_of_weights = true;

  LOSSCLI_HOST_DEVICE explicit cross_entropy(const double* parameters)
      : ignored(static_cast<int64_t>(parameters[kIgnoreIndex])) {}

  LOSSCLI_HOST_DEVICE bool ignores(int64_t label) const { return label == ignored; }

  int64_t ignored;
};

template <typename Real>
struct cross_entropy_with_probabilities : RowLoss<2, 5> {
  static constexpr bool is_cross_entropy = true;
  static constexpr bool logits = true;

  LOSSCLI_HOST_DEVICE explicit cross_entropy_with_probabilities(const double*) {}
};

}  // namespace losscli
