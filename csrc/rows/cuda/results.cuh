// Where the results of a row go.
#pragma once

#include "rows/cuda/target.cuh"

namespace losscli::cuda {

// By one thread, for the row.
template <typename Stored, typename Real>
__device__ __forceinline__ void write_row(const RowArguments& arguments, const RowMemory& memory,
                                          int64_t row, double loss, double log_sum_exp,
                                          bool correct) {
  if (memory.losses) {
    memory.losses[row] = loss;
  } else if (arguments.value) {
    narrow(static_cast<Real>(loss), static_cast<Stored*>(arguments.value)[row]);
  }
  if (arguments.log_sum_exp)
    static_cast<Real*>(arguments.log_sum_exp)[row] = static_cast<Real>(log_sum_exp);
  if (arguments.correct) arguments.correct[row] = correct;
}

// The loss of a row by the number of its class.
template <typename Stored, typename State, typename Scale>
__device__ __forceinline__ void finish_row(const RowArguments& arguments, const RowMemory& memory,
                                           int64_t row, const RowTarget<Stored>& target,
                                           const State& others, const RowResult<Stored>& result,
                                           float logit, const Scale& scale) {
  constexpr bool kSpread = std::is_same_v<State, SpreadState>;
  double loss = 0;
  if (!target.ignored) {
    loss = static_cast<double>(result.negative_log(logit, scale)) * target.weight;
    if constexpr (kSpread) {
      const double share = arguments.label_smoothing;
      if (share != 0) loss = (1 - share) * loss + share * result.mean_negative_log(others, scale);
    }
    if (arguments.z_loss != 0)
      loss += arguments.z_loss * result.log_sum_exp() * result.log_sum_exp();
    if (!target.known) loss = NAN;
  }
  bool correct = target.known && logit >= others.top;
  if constexpr (kSpread) correct = target.known && scale.bend(logit) >= scale.bend(others.top);
  write_row<Stored, float>(arguments, memory, row, loss,
                           arguments.log_sum_exp ? result.log_sum_exp() : 0, correct);
}

}  // namespace losscli::cuda
