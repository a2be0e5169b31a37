// What comes before and after the rows: what a mean divides by, and the sum of the losses, each in
// an order that does not change from run to run.
#pragma once

#include "rows/cuda/known_row.cuh"

namespace losscli::cuda {

// The sum of so many, each of which `one` returns: true in the first thread of the block that comes
// last, which has it.
template <typename One>
__device__ __forceinline__ bool add_all(int64_t terms, const RowMemory& memory, RowSums* totals,
                                        RowSums& sums, const One& one) {
  __shared__ RowSums shared[kTotalThreads / 32];
  __shared__ bool is_last;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTotalThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTotalThreads + threadIdx.x;
#pragma unroll 8
  for (int64_t at = first; at < terms; at += step) {
    const RowSums its = one(at);
    sums.add(its.loss, its.count);
  }
  sums = add_block<kTotalThreads>(sums, shared);
  if (gridDim.x == 1) return threadIdx.x == 0;
  if (threadIdx.x == 0) {
    totals[blockIdx.x] = sums;
    __threadfence();
    is_last = atomicAdd(memory.arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  sums = {};
  const volatile RowSums& its = totals[min(threadIdx.x, gridDim.x - 1)];
  if (threadIdx.x < gridDim.x) sums.add(its.loss, its.count);
  sums = add_block<kTotalThreads>(sums, shared);
  if (threadIdx.x != 0) return false;
  *memory.arrived = 0;
  return true;
}

// What a mean divides by, where the rows' kernel needs it.
template <template <typename> class Formula, typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    prepare_kernel(const __grid_constant__ RowArguments arguments,
                   const __grid_constant__ RowMemory memory, RowSums* totals) {
  release_next();
  if (is_written(arguments)) return;
  using Loss = Formula<RealOf<Stored>>;
  const Loss formula(arguments.parameters);
  RowSums sums = {};
  const bool is_all = add_all(arguments.rows(), memory, totals, sums, [&](int64_t row) {
    const KnownRow<Loss, Stored, RealOf<Stored>> known(arguments, formula,
                                                       RowNumbers::read<Loss>(arguments, row));
    return RowSums{0, known.share()};
  });
  if (is_all) *memory.count = sums.count;
}

// The value. `counts`: whether what a mean divides by is counted in the same pass.
template <typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    finish_kernel(const __grid_constant__ RowArguments arguments,
                  const __grid_constant__ RowMemory memory, RowSums* totals, const bool counts) {
  await_ahead();
  RowSums sums = {};
  if (!add_all(memory.terms, memory, totals, sums, [&](int64_t at) { return memory.sums[at]; }))
    return;
  double value = sums.loss;
  if (arguments.reduction == RowReduction::mean)
    value /= counts         ? sums.count
             : memory.count ? *memory.count
                            : static_cast<double>(arguments.rows());
  put_value<Stored>(arguments, 0, static_cast<RealOf<Stored>>(value));
  *memory.claimed = 0;
}

}  // namespace losscli::cuda
