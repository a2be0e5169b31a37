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
  __shared__ Scratch<RowSums> shared;
  __shared__ bool is_last;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTotalThreads;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTotalThreads + threadIdx.x;
#pragma unroll 8
  for (int64_t at = first; at < terms; at += step) sums.add(one(at));
  sums = block_sum<kTotalThreads>(sums, shared);
  if (gridDim.x == 1) return threadIdx.x == 0;
  if (threadIdx.x == 0) {
    totals[blockIdx.x] = sums;
    __threadfence();
    is_last = atomicAdd(memory.arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  const volatile RowSums& its = totals[min(threadIdx.x, gridDim.x - 1)];
  sums = threadIdx.x < gridDim.x ? RowSums(its.words[0], its.words[1]) : RowSums();
  sums = block_sum<kTotalThreads>(sums, shared);
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
  await_ahead();
  if (is_written(arguments, read_incoming(arguments, 0, 0))) return;
  using Loss = Formula<RealOf<Stored>>;
  const Loss formula(arguments.parameters);
  RowSums sums;
  const bool is_all = add_all(arguments.rows(), memory, totals, sums, [&](int64_t row) {
    const KnownRow<Loss, Stored, RealOf<Stored>> known(arguments, formula,
                                                       RowNumbers::read<Loss>(arguments, row));
    return RowSums(0, known.share());
  });
  if (is_all) *memory.count = sums.count();
}

// The value.
template <typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    finish_kernel(const __grid_constant__ RowArguments arguments,
                  const __grid_constant__ RowMemory memory, RowSums* totals) {
  release_next();
  await_ahead();
  RowSums sums;
  if (!add_all(memory.terms, memory, totals, sums, [&](int64_t at) { return memory.sums[at]; }))
    return;
  put_total<Stored>(arguments, sums);
  *memory.claimed = 0;
}

}  // namespace losscli::cuda
