// Sums over a grid in the same launch, in an order that the shape, the layout and the alignment of
// the operands decide, and nothing else: alone, cluster, collector and counted add up the same
// numbers of blocks in the same order.
#pragma once

#include <cstdint>

#include "reduce/cuda/combine.h"
#include "reduce/cuda/sum.cuh"

namespace losscli::cuda {

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

template <typename Sum>
__device__ __forceinline__ void put_sum(double* sums, int64_t i, const Sum& sum) {
#pragma unroll
  for (int w = 0; w < Sum::kWords; ++w) sums[i * Sum::kWords + w] = sum.words[w];
}

template <typename Sum, int threads>
__device__ __forceinline__ Sum sum_of(const double* sums, int64_t count, Scratch<Sum>& scratch) {
  Sum sum;
#pragma unroll 1
  for (int64_t i = threadIdx.x; i < count; i += threads) {
    Sum other;
#pragma unroll
    for (int w = 0; w < Sum::kWords; ++w) other.words[w] = __ldcg(sums + i * Sum::kWords + w);
    sum.add(other);
  }
  return block_sum<threads>(sum, scratch);
}

// The last block of each group adds up its blocks, that of the last group the groups.
template <int threads, typename Sum, typename Finish>
__device__ __forceinline__ void counted_sum(Sum sum, const GridSum& memory, Scratch<Sum>& scratch,
                                            Finish finish) {
  const unsigned group = blockIdx.x / memory.group;
  const unsigned groups = (gridDim.x + memory.group - 1) / memory.group;
  const unsigned first = group * memory.group;
  const unsigned members = min(gridDim.x - first, memory.group);
  if (threadIdx.x == 0) put_sum(memory.blocks, blockIdx.x, sum);
  if (!arrives_last(memory.arrived + group, members)) return;
  sum = sum_of<Sum, threads>(memory.blocks + int64_t{first} * Sum::kWords, members, scratch);
  if (groups > 1) {
    if (threadIdx.x == 0) put_sum(memory.groups, group, sum);
    if (!arrives_last(memory.arrived + kGroup, groups)) return;
    sum = sum_of<Sum, threads>(memory.groups, groups, scratch);
  }
  if (threadIdx.x == 0) finish(sum);
}

// A posted word is its own flag: its bits, turned so that none is zero. No addition gives the NaN
// that would be.
constexpr unsigned long long kNeverASum = 0x7ff0000000000001;

// The first block, which has no other work, waits for the sums of the others, who wait for nothing:
// the code that it runs has come from memory, and it looks, before the first sum is there. Nothing
// has to be ordered by a fence, for what is waited for is what is read. While it waits another
// block has to find a place: a GPU of few multiprocessors counts instead.
template <int threads, typename Sum, typename Finish>
__device__ __forceinline__ void collect_posted(const GridSum& memory, Finish finish) {
  __shared__ Scratch<Sum> scratch;
  volatile unsigned long long* const posted = memory.posted;
  Sum collected;
#pragma unroll 1
  for (unsigned i = threadIdx.x; i < gridDim.x - 1; i += threads) {
    Sum sum;
#pragma unroll
    for (int w = 0; w < Sum::kWords; ++w) {
      unsigned long long bits;
      while ((bits = posted[i * Sum::kWords + w]) == 0) __nanosleep(20);
      posted[i * Sum::kWords + w] = 0;
      sum.words[w] = __longlong_as_double(bits ^ kNeverASum);
    }
    collected.add(sum);
  }
  collected = block_sum<threads>(collected, scratch);
  if (threadIdx.x == 0) finish(collected);
}

template <typename Sum>
__device__ __forceinline__ void post_sum(const Sum& sum, const GridSum& memory) {
  volatile unsigned long long* const posted = memory.posted;
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int w = 0; w < Sum::kWords; ++w)
    posted[(blockIdx.x - 1) * Sum::kWords + w] = __double_as_longlong(sum.words[w]) ^ kNeverASum;
}

#if __CUDA_ARCH__ >= 900
// As cooperative_groups has them, whose header takes four seconds to compile.
__device__ __forceinline__ void synchronize_cluster() {
  asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}

// A double in the shared memory of another block, at the place that it has in this one's.
__device__ __forceinline__ double read_cluster(const double* shared, unsigned block) {
  double value;
  asm volatile(
      "{\n\t.reg .u32 there;\n\t"
      "mapa.shared::cluster.u32 there, %1, %2;\n\t"
      "ld.shared::cluster.f64 %0, [there];\n\t}"
      : "=d"(value)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "r"(block)
      : "memory");
  return value;
}
#endif

// The first block reads the sums of the others in the cluster where they are.
template <typename Sum, typename Finish>
__device__ __forceinline__ void cluster_sum(const Sum& sum, Finish finish) {
#if __CUDA_ARCH__ >= 900
  __shared__ Scratch<Sum, 1> block;
  if (threadIdx.x == 0) block.put(0, sum);
  synchronize_cluster();
  if (blockIdx.x == 0 && threadIdx.x < kWarp) {
    Sum total;
    if (threadIdx.x < gridDim.x) {
#pragma unroll
      for (int w = 0; w < Sum::kWords; ++w)
        total.words[w] = read_cluster(&block.words[0][w], threadIdx.x);
    }
    total = warp_sum(total);
    if (threadIdx.x == 0) finish(total);
  }
  synchronize_cluster();  // the memory of a block that has left is not there to be read
#endif
}

#ifdef LOSSCLI_STRATEGIES
// One atomic addition a block and word; the last to arrive hands the total over.
template <typename Sum, typename Finish>
__device__ __forceinline__ void atomic_sum(Sum sum, const GridSum& memory, Finish finish) {
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int w = 0; w < Sum::kWords; ++w) atomicAdd(memory.total + w, sum.words[w]);
  if (!arrive(memory.arrived, gridDim.x)) return;
#pragma unroll
  for (int w = 0; w < Sum::kWords; ++w) {
    sum.words[w] = __ldcg(memory.total + w);
    memory.total[w] = 0;
  }
  finish(sum);
}
#endif

// Adds every thread's `sum` over the whole grid. `finish(total)` runs in one thread of one block,
// unless the sums of the blocks are left to another kernel.
template <int threads, typename Sum, typename Finish>
__device__ __forceinline__ void grid_sum(Sum sum, const GridSum& memory, Finish finish) {
  __shared__ Scratch<Sum> scratch;
  sum = block_sum<threads>(sum, scratch);
  if (memory.combine == Combine::alone) {
    if (threadIdx.x == 0) finish(sum);
  } else if (memory.combine == Combine::cluster) {
    cluster_sum(sum, finish);
  } else if (memory.combine == Combine::collector) {
    post_sum(sum, memory);
  } else if (memory.combine == Combine::counted) {
    counted_sum<threads>(sum, memory, scratch, finish);
  }
#ifdef LOSSCLI_STRATEGIES
  else if (memory.combine == Combine::partial) {
    if (threadIdx.x != 0) return;
    if (memory.rounded) {
      memory.blocks[blockIdx.x] = sum.rounded();
    } else {
      put_sum(memory.blocks, blockIdx.x, sum);
    }
  } else {
    atomic_sum(sum, memory, finish);
  }
#endif
}

}  // namespace losscli::cuda
