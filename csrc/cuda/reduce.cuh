// Sums over a block, and over a grid in the same launch, in an order that only the shape decides.
#pragma once

#include <cstdint>

#include "memory.cuh"
#include "tuning.h"

namespace losscli::cuda {

constexpr int kWarp = 32;

__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value += __shfl_down_sync(0xffffffffu, value, distance);
  return value;
}

// The sum over the block, in thread 0. `scratch` holds a double for each warp.
__device__ __forceinline__ double block_sum(double value, double* scratch) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  if (warp != 0) return 0;
  return warp_sum(lane < blockDim.x / kWarp ? scratch[lane] : 0.0);
}

// Scratch memory of a sum over a grid: its blocks' sums, their groups' sums, and how many blocks
// have arrived. The counters are to be zero at the start.
struct GridSum {
  double* blocks = nullptr;
  double* groups = nullptr;
  unsigned* arrived = nullptr;  // one a group, and one for the groups

  static int64_t group_count(int64_t blocks) { return (blocks + kGroup - 1) / kGroup; }
  static size_t counter_bytes(int64_t blocks) {
    return (group_count(blocks) + 1) * sizeof(unsigned);
  }
  static size_t bytes(int64_t blocks) {
    return blocks == 1 ? 0
                       : (blocks + group_count(blocks)) * sizeof(double) + counter_bytes(blocks);
  }

  GridSum(void* workspace, int64_t block_count)
      : blocks(static_cast<double*>(workspace)),
        groups(blocks + block_count),
        arrived(reinterpret_cast<unsigned*>(groups + group_count(block_count))) {}
};

// Tells one block, that which arrives last of `count`, that all sums of the others can be read.
__device__ __forceinline__ bool arrives_last(unsigned* counter, unsigned count) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(counter, 1) == count - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

__device__ __forceinline__ double sum_of(const double* values, int64_t count, double* scratch) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += __ldcg(values + i);
  return block_sum(sum, scratch);
}

// Adds every thread's `value` over the whole grid: the last block of each group adds up its blocks,
// the last group's the groups. `finish(total)` runs in one thread of one block.
template <typename Finish>
__device__ __forceinline__ void grid_sum(double value, const GridSum& memory, Finish finish) {
  __shared__ double scratch[kWarp];
  double sum = block_sum(value, scratch);
  if (gridDim.x > 1) {
    const unsigned group = blockIdx.x / kGroup;
    const unsigned groups = (gridDim.x + kGroup - 1) / kGroup;
    const unsigned first = group * kGroup;
    const unsigned members = min(gridDim.x - first, static_cast<unsigned>(kGroup));
    if (threadIdx.x == 0) memory.blocks[blockIdx.x] = sum;
    if (!arrives_last(memory.arrived + group, members)) return;
    sum = sum_of(memory.blocks + first, members, scratch);
    if (threadIdx.x == 0) memory.groups[group] = sum;
    __syncthreads();
    if (!arrives_last(memory.arrived + groups, groups)) return;
    sum = sum_of(memory.groups, groups, scratch);
  }
  if (threadIdx.x == 0) finish(sum);
}

}  // namespace losscli::cuda
