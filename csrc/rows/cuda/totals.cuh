// What comes before and after the rows: the sum of the weights of the targets, and the sum of the
// losses, each in an order that does not change from run to run.
#pragma once

#include "rows/cuda/block_sum.cuh"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/target.cuh"

namespace losscli::cuda {

// The sums of the rows' losses and of the weights of their targets, each if asked for: true in the
// block that comes last, with the sums in each of its threads.
template <typename Stored>
__device__ __forceinline__ bool add_rows(const RowArguments& arguments, const double* losses,
                                         bool weights, Totals* totals, unsigned* arrived,
                                         double& loss, double& weight) {
  __shared__ double memory[kTotalThreads / 32];
  __shared__ bool is_last;
  loss = weight = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kTotalThreads;
  for (int64_t row = blockIdx.x * kTotalThreads + threadIdx.x; row < arguments.rows();
       row += step) {
    if (losses) loss += losses[row];
    if (weights) {
      const RowTarget<Stored> target(arguments, RowTarget<Stored>::read_number(arguments, row));
      weight += target.known ? target.weight : 0.0;
      // A loss whose target is no class is NaN, and so are all gradients of a mean with it.
      if (!target.known && !target.ignored) weight = NAN;
    }
  }
  if (losses) loss = add_block(loss, memory);
  if (weights) weight = add_block(weight, memory);
  if (gridDim.x == 1) return true;
  if (threadIdx.x == 0) {
    totals->losses[blockIdx.x] = loss;
    totals->weights[blockIdx.x] = weight;
    __threadfence();
    is_last = atomicAdd(arrived, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  const volatile Totals& all = *totals;
  loss = threadIdx.x < gridDim.x ? all.losses[threadIdx.x] : 0;
  weight = threadIdx.x < gridDim.x ? all.weights[threadIdx.x] : 0;
  loss = add_block(loss, memory);
  weight = add_block(weight, memory);
  if (threadIdx.x == 0) *arrived = 0;
  return true;
}

// What a mean divides by, where the rows' kernel needs it.
template <typename Stored>
__global__ void __launch_bounds__(kTotalThreads)
    prepare_kernel(const __grid_constant__ RowArguments arguments,
                   const __grid_constant__ RowMemory memory, Totals* totals) {
  if (is_written(arguments)) return;
  double loss, weight;
  if (!add_rows<Stored>(arguments, nullptr, true, totals, memory.arrived, loss, weight)) return;
  if (threadIdx.x == 0) *memory.count = weight;
}

template <typename Stored, typename Real>
__global__ void __launch_bounds__(kTotalThreads)
    finish_kernel(const __grid_constant__ RowArguments arguments,
                  const __grid_constant__ RowMemory memory, Totals* totals) {
  double value, weight;
  const bool mean = arguments.reduction == RowReduction::mean;
  const bool weights = mean && !arguments.operands[1] && !memory.count;
  if (!add_rows<Stored>(arguments, memory.losses, weights, totals, memory.arrived, value, weight))
    return;
  if (threadIdx.x != 0) return;
  if (mean) {
    value /= arguments.operands[1] ? static_cast<double>(arguments.rows())
             : weights             ? weight
                                   : *memory.count;
  }
  narrow(static_cast<Real>(value), *static_cast<Stored*>(arguments.value));
  *memory.claimed = 0;
}

}  // namespace losscli::cuda
