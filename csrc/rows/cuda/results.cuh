// What a row's target makes of the row: its loss, where that goes, and what its gradients are
// multiplied by.
#pragma once

#include <cmath>

#include "rows/cuda/known_row.cuh"
#include "rows/cuda/spread.cuh"

namespace losscli::cuda {

template <typename Stored>
struct RowTarget {
  using Real = RealOf<Stored>;

  int64_t number = 0;
  Real weight = 0;
  bool ignored = false;
  bool known = false;  // whether it is the number of a class

  __device__ __forceinline__ RowTarget(const RowArguments& arguments, int64_t number)
      : number(number) {
    ignored = number == ignore_index(arguments);
    known = !ignored && number >= 0 && number < arguments.length;
    if (known)
      weight = arguments.weight
                   ? static_cast<Real>(widen(static_cast<const Stored*>(arguments.weight)[number]))
                   : Real(1);
  }
};

// A row once all of it has been read. Its target's logit is no part of the sum of the others, so
// that neither a loss near 0 nor a gradient near 0 loses its digits.
template <typename Stored>
struct RowResult {
  float reference;  // that of the powers below
  float others;     // the sum of the powers of all classes but the target
  float own;        // the target's
  float sum;        // of all

  template <typename Scale>
  __device__ __forceinline__ RowResult(const RowState& state, float logit, const Scale& scale) {
    const float bent = scale.bend(logit);
    reference = scale.reference(fmaxf(state.top, bent));
    others = state.sum_for(scale, reference);
    own = scale.template any_power<Stored>(bent, reference);
    sum = others + own;
  }

  // log(sum of exp(x / temperature)) - x_t / temperature: a sum of two positive numbers, or one
  // that has all its digits.
  template <typename Scale>
  __device__ __forceinline__ float negative_log(float logit, const Scale& scale) const {
    if (own > others || own >= 1.0f) return log1pf(others / own);
    const double rest = scale.template below<Stored>(reference, scale.bend(logit));
    return logf(sum) + static_cast<float>(rest * 0.6931471805599453);
  }

  // The mean of the same over all classes.
  template <typename Scale>
  __device__ __forceinline__ double mean_negative_log(const SpreadState& state, const Scale& scale,
                                                      const RowArguments& arguments) const {
    // From the largest logit to the logarithm of the sum: the error of that one's power is in both.
    const float above = logf(sum / scale.template any_power<Stored>(state.top, reference));
    const double classes = share_of(arguments) * static_cast<double>(arguments.length);
    return above + state.below * scale.unit() / classes;
  }

  __device__ __forceinline__ float log_sum_exp() const {
    return static_cast<float>(logf(sum) + reference * 0.6931471805599453);
  }
};

// The loss of a row, and what it counts.
template <typename Stored, typename State, typename Scale>
__device__ __forceinline__ RowSums sums_of(const RowArguments& arguments,
                                           const RowTarget<Stored>& target, const State& others,
                                           const RowResult<Stored>& result, float logit,
                                           const Scale& scale) {
  constexpr bool kSpread = std::is_same_v<State, SpreadState>;
  if (target.ignored) return {};
  double loss = static_cast<double>(result.negative_log(logit, scale)) * target.weight;
  if constexpr (kSpread) {
    const double share = arguments.parameters[kLabelSmoothing];
    if (share != 0)
      loss = (1 - share) * loss + share * result.mean_negative_log(others, scale, arguments);
  }
  if (arguments.parameters[kZLoss] != 0)
    loss += arguments.parameters[kZLoss] * result.log_sum_exp() * result.log_sum_exp();
  return {target.known ? loss : NAN, target.weight};
}

// Puts it where it goes, by one thread.
template <typename Stored>
__device__ __forceinline__ void put_row(const RowArguments& arguments, const RowMemory& memory,
                                        int64_t row, const RowSums& sums) {
  if (memory.sums)
    memory.sums[row] = sums;
  else if (arguments.value)
    put_value<Stored>(arguments, row, static_cast<float>(sums.loss()));
}

// What the gradients of a row are made of. `incoming`: the upstream gradient.
template <typename Stored, typename Scale>
__device__ __forceinline__ RowFactors factors_of(const RowArguments& arguments,
                                                 const RowTarget<Stored>& target,
                                                 const RowResult<Stored>& row, float incoming,
                                                 float logit, const Scale& of_logits) {
  constexpr bool kSpread = !std::is_same_v<Scale, RowScale>;
  if (target.ignored) return {};
  const float scale = incoming / static_cast<float>(arguments.parameters[kTemperature]);
  const double smoothing = kSpread ? arguments.parameters[kLabelSmoothing] : 0;
  const float picked = static_cast<float>(1 - smoothing) * target.weight * scale;
  float beyond = kSpread ? static_cast<float>(smoothing) * scale : 0.0f;
  if (arguments.parameters[kZLoss] != 0) {
    const float squared =
        static_cast<float>(2 * arguments.parameters[kZLoss] * row.log_sum_exp()) * scale;
    beyond = kSpread ? beyond + squared : squared;
  }
  const float inverse = 1.0f / row.sum;
  RowFactors factors;
  factors.all = (picked + beyond) * inverse;
  if constexpr (kSpread)
    factors.share = static_cast<float>(smoothing / static_cast<double>(arguments.length)) * scale;
  factors.own = beyond * (row.own * inverse) - picked * (row.others * inverse);
  if constexpr (kSpread) factors.own = (factors.own - factors.share) * of_logits.slope(logit);
  if (!target.known) factors.all = factors.own = NAN;
  return factors;
}

}  // namespace losscli::cuda
