// A pass down the rows of an input whose target is one row that repeats: a thread reads its part of
// the target once.
#pragma once

#include <algorithm>

#include "worker.cuh"

namespace losscli::cuda {

// How rows are cut into blocks: `width` packs of neighbouring threads along a row, `height` rows at
// a time, `across` blocks side by side, `down` one below the other.
struct RowCut {
  int64_t packs;  // of a row
  int64_t rows;
  int width;
  int height;
  unsigned across;
  unsigned down;
};

template <typename Loss, typename Stored, typename Pass, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident)
    loss_rows_kernel(const Loss loss, const LossArguments arguments, const GridSum memory,
                     const RowCut rows) {
  using P = Pack<Stored>;
  constexpr int kLoads = Shape::loads;

  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, arguments.grad_output.data, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);
  const auto* input = static_cast<const P*>(arguments.input.data);

  const int64_t column = int64_t{blockIdx.x % rows.across} * rows.width + threadIdx.x % rows.width;
  const int64_t step = int64_t{rows.height} * kLoads;
  const int line = threadIdx.x / rows.width;
  double carried = 0;
  if (line < rows.height && column < rows.packs) {
    const P target = static_cast<const P*>(arguments.target.data)[column];
    for (int64_t row = blockIdx.x / rows.across * step + line; row < rows.rows;
         row += rows.down * step) {
      RealOf<Stored> sum = 0;
      P inputs[kLoads];
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        if (row + u * rows.height < rows.rows)
          inputs[u] =
              read<Shape::past_first_level>(input + (row + u * rows.height) * rows.packs + column);
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        if (row + u * rows.height < rows.rows)
          worker.pack(inputs[u], target, P(),
                      ((row + u * rows.height) * rows.packs + column) * P::kCount, sum);
      carried += sum;
    }
  }
  finish<Stored, Pass, Shape>(arguments, memory, carried);
}

// Cuts rows for a kernel of this shape: at most `most` blocks, or one strip of columns a block
// where there are more.
template <typename Stored, typename Shape>
RowCut row_cut(const LossArguments& arguments, int64_t most) {
  RowCut cut;
  cut.packs = arguments.target.period / Pack<Stored>::kCount;
  cut.rows = arguments.size / arguments.target.period;
  cut.across = static_cast<unsigned>(divide_up(cut.packs, Shape::threads));
  cut.width = static_cast<int>(divide_up(cut.packs, cut.across));
  cut.height = Shape::threads / cut.width;
  const int64_t steps = divide_up(cut.rows, int64_t{cut.height} * Shape::loads);
  cut.down = static_cast<unsigned>(
      std::clamp<int64_t>(most / cut.across, 1, divide_up(steps, Shape::each)));
  return cut;
}

}  // namespace losscli::cuda
