// The log-probability of a row's token, and the entropy of softmax(logits).
#pragma once

#include "rowfunctors/row.h"

namespace losscli::rowfunctors {

template <typename Real>
struct token_log_probs {
  static constexpr int kOperands = 1, kSums = 1, kValues = 2;
  static constexpr bool kTokens = true;
  bool entropy;

  LOSSCLI_HOST_DEVICE explicit token_log_probs(const Call& call)
      : entropy(call.values[1] || call.incoming[1]) {}
  LOSSCLI_HOST_DEVICE bool needs_sums() const { return entropy; }
  LOSSCLI_HOST_DEVICE void add(const Real* log_p, const Real* p, Real* sums) const {
    const Real term = p[0] * log_p[0];
    sums[0] -= p[0] == Real(0) ? Real(0) : term;
  }
  LOSSCLI_HOST_DEVICE void values(const Real* sums, Real token_log_p, Real* values) const {
    values[0] = token_log_p;
    values[1] = sums[0];
  }
  LOSSCLI_HOST_DEVICE void gradients(const Real* log_p, const Real* p, const Real* sums,
                                     bool is_token, const Real* incoming, Real* gradients) const {
    const Real term = p[0] * (log_p[0] + sums[0]);
    const Real of_entropy = p[0] == Real(0) ? Real(0) : term;
    const Real of_token = incoming[0] * ((is_token ? Real(1) : Real(0)) - p[0]);
    gradients[0] = entropy ? of_token - incoming[1] * of_entropy : of_token;
  }
};

}  // namespace losscli::rowfunctors
