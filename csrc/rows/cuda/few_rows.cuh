// Calls of few rows: each warp of the walk counts what a mean divides by, and the last block sums
// the losses. Launches of their own for the two would cost the host more than the rows do.
#pragma once

#include "rows/cuda/results.cuh"

namespace losscli::cuda {

// By all threads of a warp.
template <typename Stored>
__device__ __forceinline__ double count_few(const RowArguments& arguments) {
  RowSums sums;
#pragma unroll 4
  for (int64_t row = threadIdx.x % kWarp; row < arguments.rows(); row += kWarp) {
    const RowTarget<Stored> target(arguments, read_label(arguments, row));
    const double known = target.known ? static_cast<double>(target.weight) : NAN;
    sums.add({0, target.ignored ? 0.0 : known});
  }
  return __shfl_sync(~0u, warp_sum(sums).count(), 0);
}

// By all threads of a block, after its rows.
template <typename Stored>
__device__ __forceinline__ void finish_few(const RowArguments& arguments, const RowMemory& memory) {
  if (!memory.finishes || !memory.sums) return;
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(memory.arrived, 1) == gridDim.x - 1;
  __syncthreads();
  if (!is_last || threadIdx.x >= kWarp) return;
  __threadfence();
  RowSums sums;
#pragma unroll 4
  for (int64_t at = threadIdx.x; at < memory.terms; at += kWarp) {
    const volatile RowSums& its = memory.sums[at];
    sums.add({its.words[0], its.words[1]});
  }
  sums = warp_sum(sums);
  if (threadIdx.x != 0) return;
  put_total<Stored>(arguments, sums);
  *memory.arrived = 0;
}

}  // namespace losscli::cuda
