// A pass over tiles of the whole iteration space, for operands that lie in any way.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

template <typename Loss, typename Stored, typename Pass>
__global__ void __launch_bounds__(Pass::template cut<Stored>.threads,
                                  Pass::template cut<Stored>.resident)
    loss_tiles_kernel(const Loss loss, const LossArguments arguments, const GridSum memory) {
  using P = Pack<Stored>;
  constexpr Cut kCut = Pass::template cut<Stored>;
  constexpr int kTile = Pass::template tile<Stored>;

  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);
  const auto* flat_input = static_cast<const P*>(arguments.input.data);
  const auto* flat_target = static_cast<const P*>(arguments.target.data);
  const auto* flat_output = static_cast<const P*>(arguments.grad_output.data);

  double carried = 0;
  for (int64_t base = int64_t{blockIdx.x} * kTile; base < arguments.size;
       base += int64_t{gridDim.x} * kTile) {
    // A tile's part of this thread in Real, the tiles' in double.
    RealOf<Stored> sum = 0;
    if (base + kTile <= arguments.size) {
      P input[kCut.loads], target[kCut.loads], grad_output[Pass::grad_output ? kCut.loads : 1];
      if constexpr (Pass::walk == Walk::flat) {
        const int64_t first = base / P::kCount + threadIdx.x;
#pragma unroll
        for (int u = 0; u < kCut.loads; ++u) {
          input[u] = read(flat_input + first + u * kCut.threads);
          target[u] = read(flat_target + first + u * kCut.threads);
          if constexpr (Pass::grad_output)
            grad_output[u] = read(flat_output + first + u * kCut.threads);
        }
      } else {
        const TileReader<Stored, kTile> inputs(arguments.input, base),
            targets(arguments.target, base), outputs(arguments.grad_output, base);
#pragma unroll
        for (int u = 0; u < kCut.loads; ++u) {
          const int offset = (u * kCut.threads + threadIdx.x) * P::kCount;
          input[u] = inputs.pack(offset);
          target[u] = targets.pack(offset);
          if constexpr (Pass::grad_output) grad_output[u] = outputs.pack(offset);
        }
      }
#pragma unroll
      for (int u = 0; u < kCut.loads; ++u)
        worker.pack(input[u], target[u], grad_output[Pass::grad_output ? u : 0],
                    base + (u * kCut.threads + threadIdx.x) * P::kCount, sum);
    } else if constexpr (Pass::walk == Walk::flat) {
      const int count = static_cast<int>(arguments.size - base);
      const int packs = count / P::kCount;
      const int64_t first = base / P::kCount;
      P input[kCut.loads], target[kCut.loads], grad_output[Pass::grad_output ? kCut.loads : 1];
#pragma unroll
      for (int u = 0; u < kCut.loads; ++u) {
        const int pack = u * kCut.threads + threadIdx.x;
        if (pack < packs) {
          input[u] = read(flat_input + first + pack);
          target[u] = read(flat_target + first + pack);
          if constexpr (Pass::grad_output) grad_output[u] = read(flat_output + first + pack);
        }
      }
#pragma unroll
      for (int u = 0; u < kCut.loads; ++u) {
        const int pack = u * kCut.threads + threadIdx.x;
        if (pack < packs)
          worker.pack(input[u], target[u], grad_output[Pass::grad_output ? u : 0],
                      (first + pack) * P::kCount, sum);
      }
      const int64_t last = base + packs * P::kCount + threadIdx.x;
      if (last < arguments.size) {
        const auto at = [&](const Operand& operand) {
          return static_cast<const Stored*>(operand.data)[last];
        };
        worker.single(at(arguments.input), at(arguments.target),
                      Pass::grad_output ? at(arguments.grad_output) : Stored(), last, sum);
      }
    } else {
      const TileReader<Stored, kTile> inputs(arguments.input, base),
          targets(arguments.target, base), outputs(arguments.grad_output, base);
      const int count = static_cast<int>(arguments.size - base);
      for (int offset = threadIdx.x; offset < count; offset += kCut.threads)
        worker.single(inputs.at(offset), targets.at(offset),
                      Pass::grad_output ? outputs.at(offset) : Stored(), base + offset, sum);
    }
    carried += sum;
  }
  finish<Stored, Pass>(arguments, memory, carried);
}

}  // namespace losscli::cuda
