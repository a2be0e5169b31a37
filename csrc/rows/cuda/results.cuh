// Where the results of a row go.
#pragma once

#include "rows/cuda/target.cuh"

namespace losscli::cuda {

// By one thread, for the row.
template <typename Stored, typename Real>
__device__ __forceinline__ void write_row(const RowArguments& arguments, const RowMemory& memory,
                                          int64_t row, double loss) {
  if (memory.losses) {
    memory.losses[row] = loss;
  } else if (arguments.value) {
    narrow(static_cast<Real>(loss), static_cast<Stored*>(arguments.value)[row]);
  }
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
      const double share = arguments.parameters[kLabelSmoothing];
      if (share != 0)
        loss = (1 - share) * loss + share * result.mean_negative_log(others, scale, arguments);
    }
    if (arguments.parameters[kZLoss] != 0)
      loss += arguments.parameters[kZLoss] * result.log_sum_exp() * result.log_sum_exp();
    if (!target.known) loss = NAN;
  }
  write_row<Stored, float>(arguments, memory, row, loss);
}

}  // namespace losscli::cuda
