// The log-probability of each row's token, and the entropy of the row: with p the softmax of the
// logits over the temperature, log(p_token) and minus the sum of p * log(p).
//
// Where a row is spread over several calls, of some of the tokens each, a row has more values: the
// largest logit, before the temperature divides it, and the logarithm of the sum of exponentials
// beside that one's. These have no gradient.
#pragma once

#include "losses/rows/loss.h"

namespace losscli {

// What asks for the values beside the first: 1 for the entropy, 2 for those of a part of the row, 3
// for these and the entropy.
constexpr double kOfPart = 2;

template <typename Real, bool entropy>
struct TokenLogProbs : RowLoss<1, 2> {
  static constexpr bool logits = true;
  static constexpr bool labelled = true;
  static constexpr DistanceSum distance{entropy ? 0 : -1, {1}};

  LOSSCLI_HOST_DEVICE explicit TokenLogProbs(const double* parameters)
      : inverse(static_cast<Real>(1 / parameters[0])), of_part(parameters[1] >= kOfPart) {}

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>&, const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = -totals.surprise;
    const Real of_row = totals.logarithm[0] + totals.distance;
    result.values[1] = select(of_part, finite_top(totals.tops[0]), of_row);
    result.values[2] = totals.logarithm[0];
    result.values[3] = of_row;
    result.factors[0] = incoming[0] * inverse;
    result.factors[1] = incoming[1] * inverse;
    result.factors[2] = totals.distance;
    result.factors[3] = totals.others;
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>&, const RowFinish<Real>& finish,
                                    const RowElement<Real, 1>& e, Real (&out)[1]) const {
    const Real of_token = select(e.label_mark != Real(0), finish.factors[3], -e.p[0]);
    out[0] = finish.factors[0] * of_token;
    if (!entropy) return;
    const Real slope = e.p[0] * (e.d[0] - finish.factors[2]);
    out[0] += finish.factors[1] * select(e.p[0] == Real(0), Real(0), slope);
  }

  Real inverse;
  bool of_part;
};

template <typename Real>
struct token_log_probs : TokenLogProbs<Real, true> {
  using TokenLogProbs<Real, true>::TokenLogProbs;

  static constexpr bool has_usual = true;
  template <typename Number>
  using Usual = TokenLogProbs<Number, false>;
  static bool is_usual(const double* parameters) {
    return parameters[1] == 0 || parameters[1] == kOfPart;
  }
};

}  // namespace losscli
