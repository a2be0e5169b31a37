// What a row's target makes of the row: its loss, and what its gradients are multiplied by.
#pragma once

#include <cmath>

#include "rowwise/cuda/state.cuh"
#include "rowwise/kernels.h"

namespace losscli::cuda {

// Memory of one launch besides its operands.
struct RowMemory {
  double* losses = nullptr;        // of the rows, for a sum or a mean
  double* total_weight = nullptr;  // what a mean divides by, where gradients are wanted
  // Both are zero before a launch and after it.
  int* claimed = nullptr;       // rows that have been claimed
  unsigned* arrived = nullptr;  // blocks that have summed
};

template <typename Stored>
struct RowTarget {
  using Real = RealOf<Stored>;

  int64_t number = 0;
  Real weight = 0;
  bool ignored = false;
  bool known = false;  // whether it is the number of a class

  __device__ __forceinline__ static int64_t read_number(const RowArguments& arguments,
                                                        int64_t row) {
    const int64_t at = arguments.target_strides.start(row, arguments.inner);
    switch (arguments.index) {
      case IndexType::int64:
        return static_cast<const int64_t*>(arguments.targets)[at];
      case IndexType::int32:
        return static_cast<const int32_t*>(arguments.targets)[at];
      default:
        return static_cast<const uint8_t*>(arguments.targets)[at];
    }
  }

  __device__ __forceinline__ RowTarget(const RowArguments& arguments, int64_t number)
      : number(number) {
    ignored = number == arguments.ignore_index;
    known = !ignored && number >= 0 && number < arguments.classes;
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

  __device__ __forceinline__ RowResult(const RowState& state, float logit, const RowScale& scale) {
    reference = scale.reference(fmaxf(state.top, logit));
    others = state.sum_for(scale, reference);
    own = scale.template any_power<Stored>(logit, reference);
    sum = others + own;
  }

  // log(sum of exp(x / temperature)) - x_t / temperature: a sum of two positive numbers, or one
  // that has all its digits.
  __device__ __forceinline__ float negative_log(float logit, const RowScale& scale) const {
    if (own > others || own >= 1.0f) return log1pf(others / own);
    // With the scale that the powers were computed with.
    const bool both = sizeof(Stored) == 4 && scale.is_exact(reference);
    const double factor = both ? static_cast<double>(scale.high) + scale.low : scale.high;
    const double rest = reference - logit * factor;
    return logf(sum) + static_cast<float>(rest * 0.6931471805599453);
  }

  __device__ __forceinline__ float log_sum_exp() const {
    return static_cast<float>(logf(sum) + reference * 0.6931471805599453);
  }
};

// What the gradients of a row are made of.
struct RowFactors {
  float all;  // times the exponential of a class
  float own;  // the gradient of the target's logit
};

// `incoming`: the incoming gradient times what the loss is multiplied by.
template <typename Stored>
__device__ __forceinline__ RowFactors factors_of(const RowArguments& arguments,
                                                 const RowTarget<Stored>& target,
                                                 const RowResult<Stored>& row, float incoming) {
  const float scale = incoming / static_cast<float>(arguments.temperature);
  const float picked = target.weight * scale;
  const float beyond = arguments.z_loss == 0
                           ? 0.0f
                           : static_cast<float>(2 * arguments.z_loss * row.log_sum_exp()) * scale;
  const float inverse = 1.0f / row.sum;
  RowFactors factors;
  factors.all = (picked + beyond) * inverse;
  factors.own = beyond * (row.own * inverse) - picked * (row.others * inverse);
  if (!target.known) factors.all = factors.own = NAN;
  return factors;
}

}  // namespace losscli::cuda
