// Sums over a block, and over a grid in the same launch, in an order that only the shape decides.
#pragma once

#include <cooperative_groups.h>

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

// How a sum over a grid is finished, and the memory for it.
struct GridSum {
  Strategy strategy = Strategy::single_pass;
  bool cluster = false;         // the grid is one cluster, whose blocks read each other's memory
  double* total = nullptr;      // of Strategy::atomic; zero, and left so
  unsigned* arrived = nullptr;  // one a group, and one for the groups; zero, and left so
  double* blocks = nullptr;     // a sum a block
  double* groups = nullptr;     // a sum a group
};

// Tells one block, that which arrives last of `count`, that all sums of the others can be read.
__device__ __forceinline__ bool arrives_last(unsigned* counter, unsigned count) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicInc(counter, count - 1) == count - 1;  // back to zero with the last
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

// The last block of each group adds up its blocks, that of the last group the groups.
template <typename Finish>
__device__ __forceinline__ void single_pass(double sum, const GridSum& memory, double* scratch,
                                            Finish finish) {
  const unsigned group = blockIdx.x / kGroup;
  const unsigned groups = (gridDim.x + kGroup - 1) / kGroup;
  const unsigned first = group * kGroup;
  const unsigned members = min(gridDim.x - first, static_cast<unsigned>(kGroup));
  if (threadIdx.x == 0) memory.blocks[blockIdx.x] = sum;
  if (!arrives_last(memory.arrived + group, members)) return;
  sum = sum_of(memory.blocks + first, members, scratch);
  if (groups > 1) {
    if (threadIdx.x == 0) memory.groups[group] = sum;
    __syncthreads();
    if (!arrives_last(memory.arrived + kGroup, groups)) return;
    sum = sum_of(memory.groups, groups, scratch);
  }
  if (threadIdx.x == 0) finish(sum);
}

#if __CUDA_ARCH__ >= 900
// The same in one cluster: its first block reads the sums of the others where they are.
template <typename Finish>
__device__ __forceinline__ void cluster_pass(double sum, Finish finish) {
  __shared__ double block;
  const auto cluster = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) block = sum;
  cluster.sync();
  if (blockIdx.x == 0 && threadIdx.x < kWarp) {
    sum = warp_sum(threadIdx.x < gridDim.x ? *cluster.map_shared_rank(&block, threadIdx.x) : 0.0);
    if (threadIdx.x == 0) finish(sum);
  }
  cluster.sync();  // the memory of a block that has left is not there to be read
}
#endif

// One atomic addition a block; the last to arrive hands the total over.
template <typename Finish>
__device__ __forceinline__ void atomic_pass(double sum, const GridSum& memory, Finish finish) {
  if (threadIdx.x != 0) return;
  atomicAdd(memory.total, sum);
  __threadfence();
  if (atomicInc(memory.arrived, gridDim.x - 1) != gridDim.x - 1) return;
  __threadfence();
  sum = __ldcg(memory.total);
  *memory.total = 0;
  finish(sum);
}

// Adds every thread's `value` over the whole grid. `finish(total)` runs in one thread of one block,
// unless the strategy leaves the sums of the blocks to another kernel.
template <typename Finish>
__device__ __forceinline__ void grid_sum(double value, const GridSum& memory, Finish finish) {
  __shared__ double scratch[kWarp];
  const double sum = block_sum(value, scratch);
  if (memory.strategy == Strategy::single_pass) {
    if (gridDim.x == 1) {
      if (threadIdx.x == 0) finish(sum);
      return;
    }
#if __CUDA_ARCH__ >= 900
    if (memory.cluster) return cluster_pass(sum, finish);
#endif
    return single_pass(sum, memory, scratch, finish);
  }
  if (memory.strategy == Strategy::atomic) return atomic_pass(sum, memory, finish);
  if (threadIdx.x == 0) memory.blocks[blockIdx.x] = sum;
}

// Adds up `count` sums, or `each` of them a block; the last level writes the scaled value.
template <typename Stored>
__global__ void __launch_bounds__(kGroup)
    add_sums_kernel(const double* sums, int64_t count, int64_t each, double* out, double scale,
                    void* value) {
  __shared__ double scratch[kWarp];
  const int64_t first = blockIdx.x * each;
  const double sum = sum_of(sums + first, min(each, count - first), scratch);
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    out[blockIdx.x] = sum;
  } else {
    narrow(static_cast<RealOf<Stored>>(sum * scale), *static_cast<Stored*>(value));
  }
}

}  // namespace losscli::cuda
