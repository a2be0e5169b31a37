// The sum over the threads of a block, and the memory of sums over all blocks of a launch.
#pragma once

namespace losscli::cuda {

constexpr int kTotalThreads = 256;
constexpr int kMostTotals = 256;
constexpr int kTotalRows = 1024;  // of a block, at least

// The sum over a block, in each of its threads.
__device__ __forceinline__ double add_block(double sum, double* memory) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = memory[threadIdx.x % (kTotalThreads / 32)];
#pragma unroll
  for (int distance = kTotalThreads / 64; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  __syncthreads();
  return sum;
}

// Sums of one launch, in its workspace.
struct Totals {
  double losses[kMostTotals];
  double counts[kMostTotals];
};

}  // namespace losscli::cuda
