// The loss of a row and the factors of its gradient, from the sums over its classes; in double.
//
// The largest logit is left out of the sums, and its part is added where nothing cancels: with r
// the sum of e^(x_c - max) over the other classes, lse - max is log(1 + r), which keeps its digits
// where one class holds nearly all of the weight, and so does lse - x_t, a sum of two numbers of at
// least zero. With S = 1 + r, the gradient of logit c is p_c * A - q_c for p_c = e^(x_c - max) / S,
// where q_c is what class c weighs in the loss and A the sum of all q plus what the z-loss adds;
// that of the largest logit is also (A - q) - A * r / S, whose A - q is the sum of the other q.
#pragma once

#include <type_traits>

#include "core/polynomial.h"
#include "core/vector_math.h"

namespace losscli::cpu {

// log(1 + x) for x of at least 0, NaN of NaN, for results in Real. Where that is float, 2^-28.5 is
// enough, of which no step of double takes anything but the sum 1 + x.
template <typename Real>
LOSSCLI_HOST_DEVICE double log_of_one_plus(double x) {
  if constexpr (std::is_same_v<Real, double>) {
    return vector_math::log_of_one_plus(x);
  } else {
    const double whole = 1 + x, lost = x - (whole - 1);
    const vector_math::Split<double> parts = vector_math::split(whole);
    const double s = parts.f / (2 + parts.f), square = s * s;
    // vector_math's for float.
    const double series = polynomial(square, 0x1.55555cp-1, 0x1.997cp-2, 0x1.2eececp-2);
    return parts.count * 0x1.62e42fefa39efp-1 + ((s + s) + (s * (square * series) + lost));
  }
}

// What a class weighs in the loss of a row with target t.
enum class Kind {
  number,         // nothing but for c = t
  smoothed,       // a share of its weight, and more for c = t
  probabilities,  // its share and what its probability gives
};

// Calls use(kind) with a kind that is known when it is compiled.
template <typename Use>
auto with_kind(Kind kind, Use use) {
  switch (kind) {
    case Kind::number:
      return use(std::integral_constant<Kind, Kind::number>());
    case Kind::smoothed:
      return use(std::integral_constant<Kind, Kind::smoothed>());
    default:
      return use(std::integral_constant<Kind, Kind::probabilities>());
  }
}

// What the rows of a call have in common.
struct Formula {
  double hard = 1;          // 1 - label_smoothing: the part of the target
  double share = 0;         // label_smoothing / classes: the part of each class
  double total_weight = 0;  // of all classes
  double z_loss = 0;
};

// One row. `Number` is double, or what compilers make of it over lanes of rows.
struct RowSums {
  double max = 0;   // the largest logit
  double rest = 0;  // of the exponentials of the others, that of the largest being 1
  double distance =
      0;               // of each class's part in the loss times max - x_c; smoothing: without share
  double others = 0;   // probabilities: of what the classes but the largest weigh
  double largest = 0;  // probabilities: what the largest one weighs
  double gap = 0;      // max - x_t
  double target = 0;   // the weight of the target's class
  double top = 0;      // the weight of the class of the largest logit
  bool on_top = false;  // whether that is the target
};

struct RowResult {
  double loss;
  double factor;   // of an exponential in the gradient, for an upstream gradient of 1
  double hard;     // what the gradient of the target has less
  double largest;  // the gradient of the largest logit
};

template <Kind kKind, typename Real>
LOSSCLI_HOST_DEVICE RowResult finish_row(const Formula& formula, const RowSums& row) {
  const double inverse = 1 / (1 + row.rest);
  const double logarithm = log_of_one_plus<Real>(row.rest);
  const double lse = row.max + logarithm;
  RowResult result;
  double all, all_but_largest, of_largest;
  if constexpr (kKind == Kind::probabilities) {
    all_but_largest = row.others;
    of_largest = row.largest;
    all = row.others + row.largest;
    result.hard = 0;
    result.loss = row.distance + all * logarithm;
  } else {
    const double hard = formula.hard * row.target;
    result.hard = hard;
    result.loss = hard * (row.gap + logarithm);
    all = hard;
    all_but_largest = row.on_top ? 0 : hard;
    of_largest = row.on_top ? hard : 0;
    if constexpr (kKind == Kind::smoothed) {
      result.loss += formula.share * (row.distance + formula.total_weight * logarithm);
      all += formula.share * formula.total_weight;
      all_but_largest += formula.share * (formula.total_weight - row.top);
      of_largest += formula.share * row.top;
    }
  }
  // Without a z-loss an infinite lse must not count.
  const double slope = formula.z_loss == 0 ? 0 : 2 * formula.z_loss * lse;
  result.loss += formula.z_loss == 0 ? 0 : formula.z_loss * lse * lse;
  all += slope;
  all_but_largest += slope;
  result.factor = all * inverse;
  // Where the largest logit holds the smaller part, r / S is near 1, and the other form keeps
  // digits.
  result.largest =
      row.rest > 1 ? result.factor - of_largest : all_but_largest - all * (row.rest * inverse);
  return result;
}

}  // namespace losscli::cpu
