// A pass over operands that lie in any way: each one's place is looked up, once for a tile.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

template <typename Loss, typename Stored, typename Pass, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident)
    loss_general_kernel(const Loss loss, const LossArguments arguments, const GridSum memory) {
  using P = Pack<Stored>;
  using One = Pack<Stored, 1>;
  constexpr int kThreads = Shape::threads, kLoads = Shape::loads;
  constexpr int kTile = kThreads * kLoads * P::kCount;

  Blocks blocks;
  if (!find_block<Stored, Pass, Shape>(arguments, memory, blocks)) return;
  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, arguments.grad_output.data, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);

  double carried = 0;
  for (int64_t base = int64_t{blocks.index} * kTile; base < arguments.size;
       base += int64_t{blocks.count} * kTile) {
    const TileReader<Stored, kTile> inputs(arguments.input, base), targets(arguments.target, base),
        outputs(arguments.grad_output, base);
    RealOf<Stored> sum = 0;
    if (base + kTile <= arguments.size) {
      P input[kLoads], target[kLoads], grad_output[Pass::grad_output ? kLoads : 1];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        const int offset = (u * kThreads + threadIdx.x) * P::kCount;
        input[u] = inputs.pack(offset);
        target[u] = targets.pack(offset);
        if constexpr (Pass::grad_output) grad_output[u] = outputs.pack(offset);
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        worker.pack(input[u], target[u], grad_output[Pass::grad_output ? u : 0],
                    base + (u * kThreads + threadIdx.x) * P::kCount, sum);
    } else {
      const int count = static_cast<int>(arguments.size - base);
      for (int offset = threadIdx.x; offset < count; offset += kThreads) {
        const One input{inputs.at(offset)}, target{targets.at(offset)},
            grad_output{Pass::grad_output ? outputs.at(offset) : Stored()};
        worker.pack(input, target, grad_output, base + offset, sum);
      }
    }
    carried += sum;
  }
  finish<Stored, Pass, Shape>(arguments, memory, carried);
}

}  // namespace losscli::cuda
