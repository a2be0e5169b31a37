// What rows sum up to, over the threads of a block and over all blocks of a launch.
#pragma once

namespace losscli::cuda {

constexpr int kTotalThreads = 1024;
constexpr int kMostTotals = 256;
constexpr int kOneTotal = 8 * kTotalThreads;  // sums that one block adds up alone

// Of losses, and of what they count in a mean.
struct alignas(16) RowSums {
  double loss, count;

  __device__ __forceinline__ void add(double its_loss, double its_count) {
    loss += its_loss;
    count += its_count;
  }
  // Those of the lanes of a warp, in each of them; of so many beside each other one has some.
  template <int lanes = 1>
  __device__ __forceinline__ void add_warp() {
#pragma unroll
    for (int distance = 16; distance >= lanes; distance /= 2)
      add(__shfl_xor_sync(~0u, loss, distance), __shfl_xor_sync(~0u, count, distance));
  }
};

// The sums over a block, in its first warp.
template <int threads, int lanes = 1>
__device__ __forceinline__ RowSums add_block(RowSums sums, RowSums* memory) {
  sums.add_warp<lanes>();
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = sums;
  __syncthreads();
  sums = threadIdx.x < threads / 32 ? memory[threadIdx.x] : RowSums{};
  if (threadIdx.x < 32) sums.add_warp();
  return sums;
}

}  // namespace losscli::cuda
