// What comes before and after the rows: the count that a mean divides by, and the sum of the
// losses, each in an order that does not change from run to run.
#pragma once

#include "rows/cuda/block_sum.cuh"
#include "rows/functors/cuda/known_row.cuh"

namespace losscli::cuda {

// The sum over all rows: true in the block that comes last, with the sum in each of its threads.
template <typename OfRow>
__device__ __forceinline__ bool add_over_rows(int64_t rows, const OfRow& of_row, Totals* totals,
                                              unsigned* arrived, double& sum) {
  __shared__ double memory[kTotalThreads / 32];
  __shared__ bool is_last;
  sum = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTotalThreads;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kTotalThreads + threadIdx.x; row < rows;
       row += step)
    sum += of_row(row);
  sum = add_block(sum, memory);
  if (gridDim.x == 1) return true;
  if (threadIdx.x == 0) {
    totals->losses[blockIdx.x] = sum;
    __threadfence();
    is_last = atomicAdd(arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  const volatile Totals& all = *totals;
  sum = threadIdx.x < gridDim.x ? all.losses[threadIdx.x] : 0;
  sum = add_block(sum, memory);
  if (threadIdx.x == 0) *arrived = 0;
  return true;
}

template <template <typename> class Functor, typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    count_kernel(const __grid_constant__ RowArguments arguments,
                 const __grid_constant__ RowMemory memory, Totals* totals) {
  using Real = RealOf<Stored>;
  if (is_written(arguments)) return;
  const Functor<Real> loss(arguments.parameters);
  const auto share = [&](int64_t row) {
    const RowNumbers numbers = RowNumbers::read<Functor<Real>>(arguments, row);
    return KnownRow<Functor<Real>, Stored, Real>(arguments, loss, numbers).share();
  };
  double count;
  if (!add_over_rows(arguments.rows(), share, totals, memory.arrived, count)) return;
  if (threadIdx.x == 0) *memory.count = count;
}

template <typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    sum_kernel(const __grid_constant__ RowArguments arguments,
               const __grid_constant__ RowMemory memory, Totals* totals) {
  const auto loss = [&](int64_t row) { return memory.losses[row]; };
  double value;
  if (!add_over_rows(arguments.rows(), loss, totals, memory.arrived, value)) return;
  if (threadIdx.x != 0) return;
  if (arguments.reduction == RowReduction::mean)
    value /= memory.count ? *memory.count : static_cast<double>(arguments.rows());
  put_value<Stored>(arguments, 0, static_cast<RealOf<Stored>>(value));
}

}  // namespace losscli::cuda
