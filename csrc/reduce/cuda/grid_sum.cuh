// Sums over a block, and over a grid in the same launch, in an order that the shape, the layout and
// the alignment of the operands decide, and nothing else.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>

#include "memory.cuh"
#include "tuning.h"

namespace losscli::cuda {

constexpr int kWarp = 32;

// The sum over the first `count` lanes of a warp, a power of two, in its lane 0.
template <int count = kWarp>
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int distance = count / 2; distance > 0; distance /= 2)
    value += __shfl_down_sync(0xffffffffu, value, distance);
  return value;
}

// The sum over a block of so many threads, in thread 0. `scratch` holds a double for each warp.
template <int threads>
__device__ __forceinline__ double block_sum(double value, double* scratch) {
  constexpr int kWarps = threads / kWarp;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  value = warp_sum(value);
  __syncthreads();
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  if (warp != 0) return 0;
  return warp_sum<kWarps>(lane < kWarps ? scratch[lane] : 0.0);
}

// How the blocks of a launch come to one sum.
enum class Ending : int {
  alone,    // there is one block
  cluster,  // they are one cluster, and read each other's memory
  posted,   // each posts its sum, the first block does nothing but collect them
  counted,  // each is counted in; the last of each group adds up its group, the last group the
            // groups
  atomic,   // each adds to one number
  left,     // each leaves its sum to another kernel
};

// What a launch adds up in.
struct GridSum {
  Ending ending = Ending::left;
  double* total = nullptr;               // zero, and left so
  unsigned* arrived = nullptr;           // one a group, and one for the groups; zero, and left so
  unsigned long long* posted = nullptr;  // one a block; zero, and left so
  double* blocks = nullptr;              // a sum a block
  double* groups = nullptr;              // a sum a group
};

// Counts one in; tells whether it was the last of `count`, with which the counter is back at zero.
// What was written before can be read by whoever comes later.
__device__ __forceinline__ bool arrive(unsigned* counter, unsigned count) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count - 1)
               : "memory");
  return before == count - 1;
}

// Tells one block, that which arrives last of `count`, that all sums of the others can be read.
__device__ __forceinline__ bool arrives_last(unsigned* counter, unsigned count) {
  __shared__ bool last;
  if (threadIdx.x == 0) last = arrive(counter, count);
  __syncthreads();
  return last;
}

template <int threads>
__device__ __forceinline__ double sum_of(const double* values, int64_t count, double* scratch) {
  double sum = 0;
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < count; i += threads) sum += __ldcg(values + i);
  return block_sum<threads>(sum, scratch);
}

// The last block of each group adds up its blocks, that of the last group the groups.
template <int threads, typename Finish>
__device__ __forceinline__ void counted_sum(double sum, const GridSum& memory, double* scratch,
                                            Finish finish) {
  const unsigned group = blockIdx.x / kGroup;
  const unsigned groups = (gridDim.x + kGroup - 1) / kGroup;
  const unsigned first = group * kGroup;
  const unsigned members = min(gridDim.x - first, static_cast<unsigned>(kGroup));
  if (threadIdx.x == 0) memory.blocks[blockIdx.x] = sum;
  if (!arrives_last(memory.arrived + group, members)) return;
  sum = sum_of<threads>(memory.blocks + first, members, scratch);
  if (groups > 1) {
    if (threadIdx.x == 0) memory.groups[group] = sum;
    if (!arrives_last(memory.arrived + kGroup, groups)) return;
    sum = sum_of<threads>(memory.groups, groups, scratch);
  }
  if (threadIdx.x == 0) finish(sum);
}

// A posted sum is its own flag: its bits, turned so that none is zero. No addition gives the NaN
// that would be.
constexpr unsigned long long kNeverASum = 0x7ff0000000000001;

// The first block, which has no other work, waits for the sums of the others, who wait for nothing:
// the code that it runs has come from memory, and it looks, before the first sum is there. Nothing
// has to be ordered by a fence, for what is waited for is what is read. While it waits another
// block has to find a place: that there is a second multiprocessor is taken for granted.
template <int threads, typename Finish>
__device__ __forceinline__ void collect_posted(const GridSum& memory, Finish finish) {
  __shared__ double scratch[kWarp];
  volatile unsigned long long* const posted = memory.posted;
  double collected = 0;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < gridDim.x - 1; i += threads) {
    unsigned long long bits;
    while ((bits = posted[i]) == 0) __nanosleep(20);
    posted[i] = 0;
    collected += __longlong_as_double(bits ^ kNeverASum);
  }
  collected = block_sum<threads>(collected, scratch);
  if (threadIdx.x == 0) finish(collected);
}

__device__ __forceinline__ void post_sum(double sum, const GridSum& memory) {
  volatile unsigned long long* const posted = memory.posted;
  if (threadIdx.x == 0) posted[blockIdx.x - 1] = __double_as_longlong(sum) ^ kNeverASum;
}

// The first block reads the sums of the others in the cluster where they are.
template <typename Finish>
__device__ __forceinline__ void cluster_sum(double sum, Finish finish) {
#if __CUDA_ARCH__ >= 900
  __shared__ double block;
  const auto cluster = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) block = sum;
  cluster.sync();
  if (blockIdx.x == 0 && threadIdx.x < kWarp) {
    sum = warp_sum(threadIdx.x < gridDim.x ? *cluster.map_shared_rank(&block, threadIdx.x) : 0.0);
    if (threadIdx.x == 0) finish(sum);
  }
  cluster.sync();  // the memory of a block that has left is not there to be read
#endif
}

// One atomic addition a block; the last to arrive hands the total over.
template <typename Finish>
__device__ __forceinline__ void atomic_sum(double sum, const GridSum& memory, Finish finish) {
  if (threadIdx.x != 0) return;
  atomicAdd(memory.total, sum);
  if (!arrive(memory.arrived, gridDim.x)) return;
  sum = __ldcg(memory.total);
  *memory.total = 0;
  finish(sum);
}

// Adds every thread's `value` over the whole grid. `finish(total)` runs in one thread of one block,
// unless the sums of the blocks are left to another kernel.
template <int threads, typename Finish>
__device__ __forceinline__ void grid_sum(double value, const GridSum& memory, Finish finish) {
  __shared__ double scratch[kWarp];
  const double sum = block_sum<threads>(value, scratch);
  if (memory.ending == Ending::left) {
    if (threadIdx.x == 0) memory.blocks[blockIdx.x] = sum;
  } else if (memory.ending == Ending::alone) {
    if (threadIdx.x == 0) finish(sum);
  } else if (memory.ending == Ending::cluster) {
    cluster_sum(sum, finish);
  } else if (memory.ending == Ending::posted) {
    post_sum(sum, memory);
  } else if (memory.ending == Ending::counted) {
    counted_sum<threads>(sum, memory, scratch, finish);
  } else {
    atomic_sum(sum, memory, finish);
  }
}

// Adds up `count` sums, or `each` of them a block; the last level writes the scaled value.
template <typename Stored>
__global__ void __launch_bounds__(kGroup)
    add_sums_kernel(const double* sums, int64_t count, int64_t each, double* out, double scale,
                    void* value) {
  __shared__ double scratch[kWarp];
  const int64_t first = blockIdx.x * each;
  const double sum = sum_of<kGroup>(sums + first, min(each, count - first), scratch);
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    out[blockIdx.x] = sum;
  } else {
    narrow(static_cast<RealOf<Stored>>(sum * scale), *static_cast<Stored*>(value));
  }
}

}  // namespace losscli::cuda
