// The sum of few elements by one block, however they lie: as little code as will do, for most of
// such a launch goes by before the first byte is there.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

// The element of an operand that belongs to place `i`, of few.
template <typename Stored>
__device__ __forceinline__ Stored few_at(const Operand& operand, unsigned i) {
  const auto period = static_cast<unsigned>(operand.period);
  if (operand.inner != 1) i /= static_cast<unsigned>(operand.inner);
  if (i >= period) i %= period;
  return static_cast<const Stored*>(operand.data)[i];
}

template <typename Loss, typename Stored, typename Pass>
__global__ void __launch_bounds__(kBlockThreads)
    loss_block_kernel(const Loss loss, const LossArguments arguments) {
  using Real = RealOf<Stored>;
  constexpr int kEach = kBlockElements / kBlockThreads;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, static_cast<Real>(arguments.scale));
  const auto size = static_cast<unsigned>(arguments.size);
  Stored input[kEach], target[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = u * kBlockThreads + threadIdx.x;
    if (i >= size) continue;
    input[u] = few_at<Stored>(arguments.input, i);
    target[u] = few_at<Stored>(arguments.target, i);
  }
  Real sum = 0;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = u * kBlockThreads + threadIdx.x;
    if (i < size) worker.single(input[u], target[u], Stored(), i, sum);
  }
  __shared__ double scratch[kWarp];
  const double total = block_sum<kBlockThreads>(sum, scratch);
  if (threadIdx.x == 0) put_total<Stored>(arguments, total);
}

}  // namespace losscli::cuda
