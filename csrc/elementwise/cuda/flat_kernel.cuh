// A pass over an input that is contiguous and aligned: packs by their number. The target is so too,
// or one row that repeats.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

// How a thread goes along a row that repeats, in packs.
struct RowSteps {
  unsigned packs = 1;    // of the row
  unsigned step = 0;     // from one load to the next, less whole rows
  unsigned advance = 0;  // from one tile to the next, less whole rows
};

template <typename Stored, typename Pass, typename Shape>
RowSteps row_steps(const LossArguments& arguments, int64_t blocks) {
  if constexpr (Pass::walk != Walk::rows) return {};
  const int64_t packs = arguments.target.period / Pack<Stored>::kCount;
  return {static_cast<unsigned>(packs), static_cast<unsigned>(Shape::threads % packs),
          static_cast<unsigned>(blocks * Shape::threads * Shape::loads % packs)};
}

template <typename Loss, typename Stored, typename Pass, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident)
    loss_flat_kernel(const Loss loss, const LossArguments arguments, const GridSum memory,
                     const RowSteps row) {
  using P = Pack<Stored>;
  constexpr bool kRows = Pass::walk == Walk::rows;
  constexpr int kThreads = Shape::threads, kLoads = Shape::loads;
  constexpr int kPacks = kThreads * kLoads;
  constexpr bool kAhead = !kRows || Shape::row_ahead;

  Blocks blocks;
  if (!find_block<Stored, Pass, Shape>(arguments, memory, blocks)) return;
  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, arguments.grad_output.data, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);
  const auto* inputs = static_cast<const P*>(arguments.input.data);
  const auto* targets = static_cast<const P*>(arguments.target.data);
  const auto* outputs = static_cast<const P*>(arguments.grad_output.data);

  const int64_t packs = arguments.size / P::kCount;
  unsigned column = kRows ? (blocks.index * kPacks + threadIdx.x) % row.packs : 0;
  double carried = 0;
  for (int64_t base = int64_t{blocks.index} * kPacks; base < packs;
       base += int64_t{blocks.count} * kPacks) {
    // A tile's part of this thread in Real, the tiles' in double.
    RealOf<Stored> sum = 0;
    const int64_t first = base + threadIdx.x;
    // The target's pack for the i-th of the input; of a row, the next one that this thread takes.
    unsigned at = column;
    const auto target_at = [&](int64_t i) {
      if constexpr (!kRows) {
        return read<Shape::past_first_level>(targets + i);
      } else {
        const P pack = targets[at];
        at = wrap(at + row.step, row.packs);
        return pack;
      }
    };
    if (base + kPacks <= packs) {
      P input[kLoads], target[kAhead ? kLoads : 1], grad_output[Pass::grad_output ? kLoads : 1];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        input[u] = read<Shape::past_first_level>(inputs + first + u * kThreads);
        if constexpr (kAhead) target[u] = target_at(first + u * kThreads);
        if constexpr (Pass::grad_output)
          grad_output[u] = read<Shape::past_first_level>(outputs + first + u * kThreads);
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        if constexpr (!kAhead) target[0] = target_at(first + u * kThreads);
        worker.pack(input[u], target[kAhead ? u : 0], grad_output[Pass::grad_output ? u : 0],
                    (first + u * kThreads) * P::kCount, sum);
      }
    } else {
#pragma unroll 1  // once in a launch; unrolled it would take registers from all
      for (int64_t i = first; i < packs; i += kThreads)
        worker.pack(inputs[i], target_at(i), Pass::grad_output ? outputs[i] : P(), i * P::kCount,
                    sum);
    }
    carried += sum;
    if constexpr (kRows) column = wrap(column + row.advance, row.packs);
  }

  if constexpr (!kRows) {  // what does not fill a pack, which a row does
    const int64_t last = packs * P::kCount + threadIdx.x;
    if (blocks.index == 0 && last < arguments.size) {
      using One = Pack<Stored, 1>;
      const auto at = [&](const void* data) { return static_cast<const One*>(data)[last]; };
      RealOf<Stored> sum = 0;
      worker.pack(at(arguments.input.data), at(arguments.target.data),
                  Pass::grad_output ? at(arguments.grad_output.data) : One(), last, sum);
      carried += sum;
    }
  }
  finish<Stored, Pass, Shape>(arguments, memory, carried);
}

}  // namespace losscli::cuda
