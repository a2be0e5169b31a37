// A pass over few elements by one block, the target flat or one row that repeats. Such a launch is
// over before a larger kernel's code and arguments have come from memory: both are as short as will
// do, and nothing waits for a branch before it reads.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

// Threads for packs of so many elements: each takes one or two packs of 16 bytes, or four of one
// element, so that its sum is a short chain.
template <int count>
constexpr int kFewThreads = count > 4 ? 128 : 256;

// What a launch is told, what is read by first in front: arguments come a line of the constant
// cache at a time. A launch takes packs of 16 bytes, or where operands do not lie so, of one
// element.
struct FewArguments {
  const void* input;
  const void* target;
  unsigned packs;
  unsigned period;          // packs after which the target repeats: 2 or more, or all
  unsigned period_inverse;  // a little more than 2^32 over it, to divide by; 0 where it is all
  bool skip_unit_gradient;
  void* value;
  void* grad_input;
  void* grad_target;
  const void* grad_output;
  double scale;

  FewArguments(const LossArguments& arguments, int64_t count)
      : input(arguments.input.data),
        target(arguments.target.data),
        packs(static_cast<unsigned>(arguments.size / count)),
        period(static_cast<unsigned>(arguments.target.period / count)),
        period_inverse(0),
        skip_unit_gradient(arguments.skip_unit_gradient),
        value(arguments.value),
        grad_input(arguments.grad_input),
        grad_target(arguments.grad_target),
        grad_output(arguments.grad_output.data),
        scale(arguments.scale) {
    if (period < packs) period_inverse = static_cast<unsigned>((int64_t{1} << 32) / period + 1);
  }
};

// Whether one block takes a call: few elements, the operands contiguous but for a row that repeats.
inline bool takes_few(const LossArguments& arguments) {
  return arguments.size > 0 && arguments.size <= kFewElements &&
         arguments.strategy == Strategy::single_pass && arguments.input.flat(arguments.size) &&
         arguments.target.inner == 1 &&
         (arguments.target.period > 1 || arguments.target.period == arguments.size);
}

template <typename Loss, typename Stored, typename Pass, int count>
__global__ void __launch_bounds__(kFewThreads<count>)
    loss_block_kernel(const FewArguments arguments, const Loss loss) {
  using P = Pack<Stored, count>;
  constexpr int kThreads = kFewThreads<count>, kEach = kFewElements / (kThreads * count);
  P input[kEach], target[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = min(threadIdx.x + u * kThreads, arguments.packs - 1);
    const unsigned column = i - __umulhi(i, arguments.period_inverse) * arguments.period;
    input[u] = static_cast<const P*>(arguments.input)[i];
    target[u] = static_cast<const P*>(arguments.target)[column];
  }
  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, arguments.grad_output, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);
  RealOf<Stored> sum = 0;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = threadIdx.x + u * kThreads;
    const bool is_there = i < arguments.packs;
    RealOf<Stored> part = 0;
    if (!Pass::writes || is_there) worker.pack(input[u], target[u], P(), i * count, part);
    sum += is_there ? part : 0;
  }
  if constexpr (Pass::sum) {
    __shared__ double scratch[kThreads / kWarp];
    const double part = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = part;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double total = scratch[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarp; ++warp) total += scratch[warp];
    put_total<Stored>(arguments, total);
  }
}

}  // namespace losscli::cuda
