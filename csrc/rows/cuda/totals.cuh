// What comes before and after the rows: what a mean divides by, and the sum of the losses, each in
// an order that does not change from run to run.
#pragma once

#include "rows/cuda/block_sum.cuh"
#include "rows/cuda/known_row.cuh"

namespace losscli::cuda {

// The sums of the rows' losses and of what the rows count, each if asked for: true in the block
// that comes last, with the sums in each of its threads.
template <template <typename> class Formula, typename Stored>
__device__ __forceinline__ bool add_rows(const RowArguments& arguments, const double* losses,
                                         bool counts, Totals* totals, unsigned* arrived,
                                         double& loss, double& count) {
  using Real = RealOf<Stored>;
  using Loss = Formula<Real>;
  __shared__ double memory[kTotalThreads / 32];
  __shared__ bool is_last;
  const Loss formula(arguments.parameters);
  loss = count = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTotalThreads, rows = arguments.rows();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTotalThreads + threadIdx.x;
  if (losses)
#pragma unroll 8
    for (int64_t row = first; row < rows; row += step) {
      const double one = losses[row];
      const bool is_counted = __double_as_longlong(one) != kLeftOut;
      loss += is_counted ? one : 0;
      count += is_counted;
    }
  // Each row that counts is 1, but where its class has a weight.
  if (counts && (!losses || (Loss::mean_of_weights && arguments.weight))) {
    count = 0;
    for (int64_t row = first; row < rows; row += step)
      count +=
          KnownRow<Loss, Stored, Real>(arguments, formula, RowNumbers::read<Loss>(arguments, row))
              .share();
  }
  if (losses) loss = add_block(loss, memory);
  if (counts) count = add_block(count, memory);
  if (gridDim.x == 1) return true;
  if (threadIdx.x == 0) {
    totals->losses[blockIdx.x] = loss;
    totals->counts[blockIdx.x] = count;
    __threadfence();
    is_last = atomicAdd(arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  const volatile Totals& all = *totals;
  loss = threadIdx.x < gridDim.x ? all.losses[threadIdx.x] : 0;
  count = threadIdx.x < gridDim.x ? all.counts[threadIdx.x] : 0;
  loss = add_block(loss, memory);
  count = add_block(count, memory);
  if (threadIdx.x == 0) *arrived = 0;
  return true;
}

// What a mean divides by, where the rows' kernel needs it.
template <template <typename> class Formula, typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    prepare_kernel(const __grid_constant__ RowArguments arguments,
                   const __grid_constant__ RowMemory memory, Totals* totals) {
  release_next();
  if (is_written(arguments)) return;
  double loss, count;
  if (!add_rows<Formula, Stored>(arguments, nullptr, true, totals, memory.arrived, loss, count))
    return;
  if (threadIdx.x == 0) *memory.count = count;
}

// The value, for which `counts` has the rows counted in the same pass.
template <template <typename> class Formula, typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    finish_kernel(const __grid_constant__ RowArguments arguments,
                  const __grid_constant__ RowMemory memory, Totals* totals, const bool counts) {
  await_ahead();
  double value, count;
  if (!add_rows<Formula, Stored>(arguments, memory.losses, counts, totals, memory.arrived, value,
                                 count))
    return;
  if (threadIdx.x != 0) return;
  if (arguments.reduction == RowReduction::mean)
    value /= counts ? count : memory.count ? *memory.count : static_cast<double>(arguments.rows());
  put_value<Stored>(arguments, 0, static_cast<RealOf<Stored>>(value));
  *memory.claimed = 0;
}

}  // namespace losscli::cuda
