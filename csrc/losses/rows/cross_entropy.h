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

// What both forms have in common; `capped`: with a softcap.
template <typename Real, int row_count, bool capped>
struct CrossEntropy : RowLoss<row_count, 5> {
  static constexpr bool is_cross_entropy = true;
  static constexpr bool logits = true;
  static constexpr int temperature = kTemperature;
  static constexpr bool bends = capped;
  static constexpr bool shares = true;

  LOSSCLI_HOST_DEVICE explicit CrossEntropy(const double* parameters)
      : smoothing(static_cast<Real>(parameters[kLabelSmoothing])),
        kept(static_cast<Real>(1 - parameters[kLabelSmoothing])),
        inverse(static_cast<Real>(1 / parameters[kTemperature])),
        z(static_cast<Real>(parameters[kZLoss])),
        bound(bounded(parameters[kTemperature] * parameters[kSoftcap])),
        inverse_bound(bounded(1 / (parameters[kTemperature] * parameters[kSoftcap]))) {}

  // Beyond either bound a bent logit over the temperature is the logit itself, or 0.
  LOSSCLI_HOST_DEVICE static Real bounded(double x) {
    return static_cast<Real>(x < 1e-37 ? 1e-37 : x > 1e37 ? 1e37 : x);
  }

  // C * tanh(x / C), with C the softcap times the temperature, which divides a bent logit as any
  // other. A float's rounding of it shows in an exponential, so that it has to be within a unit in
  // the last place: (tanh(z) / z - 1) / z^2 up to 1 is a minimax polynomial in z^2; beyond, where
  // 1 - tanh(z) is 2 / (1 + exp(2 * z)), the rounding of that matters little.
  LOSSCLI_HOST_DEVICE void bend(Real x, Real& bent, Real& slope) const {
    const Real z = x * inverse_bound;
    if constexpr (sizeof(Real) == 8) {
      const Real tangent = hyperbolic_tangent(z);
      bent = bound * tangent;
      slope = (Real(1) - tangent) * (Real(1) + tangent);
    } else {
      constexpr float kTerms[] = {-0.00035845028f, 0.0023013582f, -0.0079460964f, 0.021486651f,
                                  -0.0538798f,     0.13332345f,   -0.33333296f};
      const float size = size_of(z), square = z * z;
      float series = kTerms[0];
      for (int k = 1; k < 7; ++k) series = __builtin_fmaf(square, series, kTerms[k]);
      series *= square;
      const float tangent = __builtin_fmaf(z, series, z);
      const float power = exponential(2 * select(size > 43.0f, 43.0f, size));
      const float rest = 1.0f / (1.0f + power), far = __builtin_fmaf(rest, -2 * bound, bound);
      const bool near = size < 1.0f;
      bent = select(near, __builtin_fmaf(x, series, x), x < 0.0f ? -far : far);
      slope = select(near, __builtin_fmaf(-tangent, tangent, 1.0f), power * rest * (4 * rest));
      bent = x == x ? bent : x;
    }
  }

  // The logarithm of the sum of the exponentials.
  LOSSCLI_HOST_DEVICE static Real log_sum(const RowTotals<Real>& totals) {
    return totals.logarithm[0] + totals.largest[0];
  }
  // What the squared logarithm adds to the loss, and twice it over the logarithm.
  LOSSCLI_HOST_DEVICE Real squared(const RowTotals<Real>& totals) const {
    return select(z == Real(0), Real(0), z * log_sum(totals) * log_sum(totals));
  }
  LOSSCLI_HOST_DEVICE Real pull(const RowTotals<Real>& totals) const {
    return select(z == Real(0), Real(0), (z + z) * log_sum(totals));
  }

  Real smoothing, kept, inverse, z, bound, inverse_bound;
};

template <typename Real, bool capped>
struct CrossEntropyOfNumbers : CrossEntropy<Real, 1, capped> {
  static constexpr bool labelled = true;
  static constexpr bool mean_of_weights = true;

  LOSSCLI_HOST_DEVICE explicit CrossEntropyOfNumbers(const double* parameters)
      : CrossEntropy<Real, 1, capped>(parameters),
        ignored(static_cast<int64_t>(parameters[kIgnoreIndex])) {}

  LOSSCLI_HOST_DEVICE bool ignores(int64_t label) const { return label == ignored; }

  // The row's own class has a share besides, of which its exponential keeps the digits. That of a
  // single class changes nothing, and would cost the digits of what the squared logarithm adds.
  LOSSCLI_HOST_DEVICE Real share(const RowFacts<Real>& facts, const Real (&)[1],
                                 Real weight) const {
    const bool none = this->smoothing == Real(0) || facts.length == 1;
    return select(none, Real(0), this->smoothing * facts.even * weight);
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>& facts,
                                             const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    const Real picked = this->kept * facts.weight;
    const Real beyond = totals.shared + this->pull(totals);
    const Real spread = totals.shared * totals.logarithm[0] + totals.below;
    result.values[0] = picked * totals.surprise + this->squared(totals) +
                       select(this->smoothing == Real(0), Real(0), spread);
    const Real scale = incoming[0] * this->inverse;
    result.factors[0] = scale * (picked + beyond);
    result.factors[1] = scale;
    result.factors[2] = beyond * totals.own - picked * totals.others;
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>& facts, const RowFinish<Real>& finish,
                                    const RowElement<Real, 1>& e, Real (&out)[1]) const {
    const Real of_class = share(facts, e.x, e.weight);
    out[0] = e.slope * select(e.label_mark != Real(0),
                              finish.factors[1] * (finish.factors[2] - of_class),
                              finish.factors[0] * e.p[0] - finish.factors[1] * of_class);
  }

  int64_t ignored;
};

template <typename Real, bool capped>
struct CrossEntropyOfProbabilities : CrossEntropy<Real, 2, capped> {
  static constexpr int plain_rows = 1;

  using CrossEntropy<Real, 2, capped>::CrossEntropy;

  LOSSCLI_HOST_DEVICE Real share(const RowFacts<Real>& facts, const Real (&x)[2],
                                 Real weight) const {
    const Real smoothed = this->kept * x[1] + this->smoothing * facts.even;
    return select(this->smoothing == Real(0), x[1], smoothed) * weight;
  }

  LOSSCLI_HOST_DEVICE RowFinish<Real> finish(const RowFacts<Real>& facts,
                                             const RowTotals<Real>& totals,
                                             const Real (&incoming)[kMostOutputs]) const {
    RowFinish<Real> result;
    result.values[0] = totals.shared * totals.logarithm[0] + totals.below + this->squared(totals);
    // The gradient of one class is exactly that of the squared logarithm.
    const Real shared = select(facts.length == 1, Real(0), totals.shared);
    const Real scale = incoming[0] * this->inverse;
    result.factors[0] = scale * (shared + this->pull(totals));
    result.factors[1] = select(facts.length == 1, Real(0), scale);
    result.factors[2] = incoming[0] * this->kept;
    result.factors[3] = totals.logarithm[0];
    return result;
  }

  LOSSCLI_HOST_DEVICE void gradient(const RowFacts<Real>& facts, const RowFinish<Real>& finish,
                                    const RowElement<Real, 2>& e, Real (&out)[2]) const {
    const Real of_class = share(facts, e.x, e.weight);
    out[0] = e.slope * (finish.factors[0] * e.p[0] - finish.factors[1] * of_class);
    out[1] = finish.factors[2] * e.weight * (finish.factors[3] + e.d[0]);
  }
};

// One of the two, in which nothing is left of a softcap where there is none.
template <template <typename, bool> class Form, typename Real>
struct PerhapsCapped : Form<Real, true> {
  using Capped = Form<Real, true>;
  using Capped::Capped;

  static constexpr bool has_usual = true;
  template <typename Number>
  using Usual = Form<Number, false>;
  static bool is_usual(const double* parameters) { return parameters[kSoftcap] == 0; }
};

template <typename Real>
using cross_entropy = PerhapsCapped<CrossEntropyOfNumbers, Real>;

template <typename Real>
using cross_entropy_with_probabilities = PerhapsCapped<CrossEntropyOfProbabilities, Real>;

}  // namespace losscli
