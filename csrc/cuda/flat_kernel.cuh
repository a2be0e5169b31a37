// A pass over operands that are all contiguous and aligned: packs by their number.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

template <typename Loss, typename Stored, typename Pass, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident)
    loss_flat_kernel(const Loss loss, const LossArguments arguments, const GridSum memory) {
  using P = Pack<Stored>;
  constexpr int kThreads = Shape::threads, kLoads = Shape::loads;
  constexpr int kPacks = kThreads * kLoads;

  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, arguments.grad_output.data, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);
  const auto* inputs = static_cast<const P*>(arguments.input.data);
  const auto* targets = static_cast<const P*>(arguments.target.data);
  const auto* outputs = static_cast<const P*>(arguments.grad_output.data);

  const int64_t packs = arguments.size / P::kCount;
  double carried = 0;
  for (int64_t base = int64_t{blockIdx.x} * kPacks; base < packs;
       base += int64_t{gridDim.x} * kPacks) {
    // A tile's part of this thread in Real, the tiles' in double.
    RealOf<Stored> sum = 0;
    const int64_t first = base + threadIdx.x;
    if (base + kPacks <= packs) {
      P input[kLoads], target[kLoads], grad_output[Pass::grad_output ? kLoads : 1];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        input[u] = read<Shape::past_first_level>(inputs + first + u * kThreads);
        target[u] = read<Shape::past_first_level>(targets + first + u * kThreads);
        if constexpr (Pass::grad_output)
          grad_output[u] = read<Shape::past_first_level>(outputs + first + u * kThreads);
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        worker.pack(input[u], target[u], grad_output[Pass::grad_output ? u : 0],
                    (first + u * kThreads) * P::kCount, sum);
    } else {
#pragma unroll 1  // once in a launch; unrolled it would take registers from all
      for (int64_t i = first; i < packs; i += kThreads)
        worker.pack(inputs[i], targets[i], Pass::grad_output ? outputs[i] : P(), i * P::kCount,
                    sum);
    }
    carried += sum;
  }

  // What does not fill a pack.
  const int64_t last = packs * P::kCount + threadIdx.x;
  if (blockIdx.x == 0 && last < arguments.size) {
    const auto at = [&](const Operand& operand) {
      return static_cast<const Stored*>(operand.data)[last];
    };
    RealOf<Stored> sum = 0;
    worker.single(at(arguments.input), at(arguments.target),
                  Pass::grad_output ? at(arguments.grad_output) : Stored(), last, sum);
    carried += sum;
  }
  finish<Stored, Pass, Shape>(arguments, memory, carried);
}

}  // namespace losscli::cuda
