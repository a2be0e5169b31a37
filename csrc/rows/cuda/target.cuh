// What a row's target makes of the row: its loss, and what its gradients are multiplied by.
#pragma once

#include <cmath>

#include "rows/cross_entropy.h"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/spread.cuh"

namespace losscli::cuda {

template <typename Stored>
struct RowTarget {
  using Real = RealOf<Stored>;

  int64_t number = 0;
  Real weight = 0;
  bool ignored = false;
  bool known = false;  // whether it is the number of a class

  __device__ __forceinline__ static int64_t read_number(const RowArguments& arguments,
                                                        int64_t row) {
    return read_label(arguments, row);
  }

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

// `incoming`: the incoming gradient times what the loss is multiplied by.
template <typename Stored>
__device__ __forceinline__ RowFactors factors_of(const RowArguments& arguments,
                                                 const RowTarget<Stored>& target,
                                                 const RowResult<Stored>& row, float incoming,
                                                 float, const RowScale&) {
  const float scale = incoming / static_cast<float>(arguments.parameters[kTemperature]);
  const float picked = target.weight * scale;
  const float beyond =
      arguments.parameters[kZLoss] == 0
          ? 0.0f
          : static_cast<float>(2 * arguments.parameters[kZLoss] * row.log_sum_exp()) * scale;
  const float inverse = 1.0f / row.sum;
  RowFactors factors;
  factors.all = (picked + beyond) * inverse;
  factors.own = beyond * (row.own * inverse) - picked * (row.others * inverse);
  if (!target.known) factors.all = factors.own = NAN;
  return factors;
}

// The same where each class has a share of the loss, or logits are bent.
template <typename Stored, typename Scale>
__device__ __forceinline__ RowFactors factors_of(const RowArguments& arguments,
                                                 const RowTarget<Stored>& target,
                                                 const RowResult<Stored>& row, float incoming,
                                                 float logit, const Scale& of_logits) {
  const float scale = incoming / static_cast<float>(arguments.parameters[kTemperature]);
  const float picked =
      static_cast<float>(1 - arguments.parameters[kLabelSmoothing]) * target.weight * scale;
  float beyond = static_cast<float>(arguments.parameters[kLabelSmoothing]) * scale;
  if (arguments.parameters[kZLoss] != 0)
    beyond += static_cast<float>(2 * arguments.parameters[kZLoss] * row.log_sum_exp()) * scale;
  const float inverse = 1.0f / row.sum;
  RowFactors factors;
  factors.all = (picked + beyond) * inverse;
  factors.share = static_cast<float>(arguments.parameters[kLabelSmoothing] /
                                     static_cast<double>(arguments.length)) *
                  scale;
  factors.own = beyond * (row.own * inverse) - picked * (row.others * inverse) - factors.share;
  factors.own *= of_logits.slope(logit);
  if (!target.known) factors.all = factors.own = NAN;
  return factors;
}

}  // namespace losscli::cuda
