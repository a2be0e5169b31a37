// The loss and its gradients in one Pass::
#pragma once

#include "launch.h"
#include "reduce.cuh"

namespace losscli::cuda {

// How the operands lie.
enum class Walk {
  flat,     // all contiguous and aligned: packs by their number
  rows,     // the input so, the target one row that repeats: a thread keeps its columns
  general,  // any: an operand's place is looked up
};

// What a pass produces, known when it is compiled.
template <bool sum_, bool value_, bool gradient_, bool grad_output_, Walk walk_>
struct Pass {
  static constexpr bool sum = sum_;                  // the loss as one scaled sum
  static constexpr bool value = value_;              // the loss of each element
  static constexpr bool gradient = gradient_;        // of either operand, of both
  static constexpr bool grad_output = grad_output_;  // multiplied by a tensor, not by one number
  static constexpr Walk walk = walk_;

  template <typename Stored>
  static constexpr Cut cut = sum && !gradient                            ? kRead
                             : walk == Walk::rows || sizeof(Stored) == 2 ? kWritePersistent
                                                                         : kWrite;
  template <typename Stored>
  static constexpr int tile = cut<Stored>.threads * cut<Stored>.loads * Pack<Stored>::kCount;
};

// One thread's work on one pack: reads nothing, adds to `sum`, writes where results are wanted.
template <typename Loss, typename Stored, typename Pass>
struct Worker {
  using Real = RealOf<Stored>;
  using P = Pack<Stored>;

  const Loss& loss;
  Real scale;
  Stored* value;
  Stored* grad_input;
  Stored* grad_target;

  __device__ Worker(const Loss& loss, const LossArguments& arguments, Real scale)
      : loss(loss),
        scale(scale),
        value(static_cast<Stored*>(arguments.value)),
        grad_input(static_cast<Stored*>(arguments.grad_input)),
        grad_target(static_cast<Stored*>(arguments.grad_target)) {}

  __device__ __forceinline__ void element(Stored input, Stored target, Stored grad_output,
                                          Real& sum, Stored& value_out, Stored& input_out,
                                          Stored& target_out) const {
    const Real x = widen(input), y = widen(target);
    if constexpr (Pass::sum) sum += loss.value(x, y);
    if constexpr (Pass::value) narrow(loss.value(x, y), value_out);
    if constexpr (Pass::gradient) {
      const Real incoming = Pass::grad_output ? scale * widen(grad_output) : scale;
      const auto gradient = loss.gradient(x, y, incoming);
      narrow(gradient.input, input_out);
      narrow(gradient.target, target_out);
    }
  }

  __device__ __forceinline__ void pack(const P& input, const P& target, const P& grad_output,
                                       int64_t i, Real& sum) const {
    P value_out, input_out, target_out;
#pragma unroll
    for (int k = 0; k < P::kCount; ++k)
      element(input.values[k], target.values[k], grad_output.values[k], sum, value_out.values[k],
              input_out.values[k], target_out.values[k]);
    if constexpr (Pass::value) *reinterpret_cast<P*>(value + i) = value_out;
    if constexpr (Pass::gradient) {
      if (grad_input) *reinterpret_cast<P*>(grad_input + i) = input_out;
      if (grad_target) *reinterpret_cast<P*>(grad_target + i) = target_out;
    }
  }

  __device__ __forceinline__ void single(Stored input, Stored target, Stored grad_output, int64_t i,
                                         Real& sum) const {
    Stored value_out, input_out, target_out;
    element(input, target, grad_output, sum, value_out, input_out, target_out);
    if constexpr (Pass::value) value[i] = value_out;
    if constexpr (Pass::gradient) {
      if (grad_input) grad_input[i] = input_out;
      if (grad_target) grad_target[i] = target_out;
    }
  }
};

// What the gradients are multiplied by, but for a tensor of incoming gradients; false where there
// is nothing to do because the gradients are right already.
template <typename Stored, typename Pass>
__device__ __forceinline__ bool find_scale(const LossArguments& arguments, RealOf<Stored>& scale) {
  double factor = arguments.scale;
  if (Pass::gradient && !Pass::grad_output && arguments.grad_output.data) {
    const double incoming = widen(*static_cast<const Stored*>(arguments.grad_output.data));
    if (arguments.skip_unit_gradient && incoming == 1) return false;
    factor *= incoming;
  }
  scale = static_cast<RealOf<Stored>>(factor);
  return true;
}

template <typename Stored, typename Pass>
__device__ __forceinline__ void finish(const LossArguments& arguments, const GridSum& memory,
                                       double sum) {
  if constexpr (Pass::sum) {
    grid_sum(sum, memory, [&](double total) {
      narrow(static_cast<RealOf<Stored>>(total * arguments.scale),
             *static_cast<Stored*>(arguments.value));
    });
  }
}

// Walks tiles of the whole iteration space.
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
          input[u] = flat_input[first + u * kCut.threads];
          target[u] = flat_target[first + u * kCut.threads];
          if constexpr (Pass::grad_output) grad_output[u] = flat_output[first + u * kCut.threads];
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

// Walks down the rows, so that a thread reads its part of the target once.
template <typename Loss, typename Stored, typename Pass>
__global__ void __launch_bounds__(Pass::template cut<Stored>.threads,
                                  Pass::template cut<Stored>.resident)
    loss_rows_kernel(const Loss loss, const LossArguments arguments, const GridSum memory,
                     const RowCut rows) {
  using P = Pack<Stored>;
  constexpr int kLoads = Pass::template cut<Stored>.loads;

  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, scale)) return;
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
          inputs[u] = input[(row + u * rows.height) * rows.packs + column];
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        if (row + u * rows.height < rows.rows)
          worker.pack(inputs[u], target, P(),
                      ((row + u * rows.height) * rows.packs + column) * P::kCount, sum);
      carried += sum;
    }
  }
  finish<Stored, Pass>(arguments, memory, carried);
}

template <typename Stored, typename Pass>
RowCut row_cut(const LossArguments& arguments) {
  constexpr Cut kCut = Pass::template cut<Stored>;
  RowCut cut;
  cut.packs = arguments.target.period / Pack<Stored>::kCount;
  cut.rows = arguments.size / arguments.target.period;
  cut.across = static_cast<unsigned>(divide_up(cut.packs, kCut.threads));
  cut.width = static_cast<int>(divide_up(cut.packs, cut.across));
  cut.height = kCut.threads / cut.width;
  const int64_t steps = divide_up(cut.rows, int64_t{cut.height} * kCut.loads);
  const int64_t most = arguments.skip_unit_gradient ? kRescaleBlocks : kCut.max_blocks;
  cut.down = static_cast<unsigned>(std::clamp<int64_t>(most / cut.across, 1, steps));
  return cut;
}

template <typename Stored, typename Pass>
int64_t block_count(const LossArguments& arguments) {
  if constexpr (Pass::walk == Walk::rows) {
    const RowCut cut = row_cut<Stored, Pass>(arguments);
    return int64_t{cut.across} * cut.down;
  }
  const int64_t tiles = divide_up(arguments.size, Pass::template tile<Stored>);
  const int64_t most =
      arguments.skip_unit_gradient ? kRescaleBlocks : Pass::template cut<Stored>.max_blocks;
  return std::clamp<int64_t>(tiles, 1, most);
}

template <template <typename> class Loss, typename Stored, typename Pass>
void launch_loss(const LossArguments& arguments, const LaunchContext& context) {
  using Functor = Loss<RealOf<Stored>>;
  constexpr int kThreads = Pass::template cut<Stored>.threads;
  const Functor loss(arguments.parameters);
  const int64_t blocks = block_count<Stored, Pass>(arguments);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const GridSum memory(context.workspace, blocks);
  if (Pass::sum && blocks > 1)
    check(cudaMemsetAsync(memory.arrived, 0, GridSum::counter_bytes(blocks), stream),
          "clearing the counters of a sum");
  const auto grid = static_cast<unsigned>(blocks);
  if constexpr (Pass::walk == Walk::rows) {
    loss_rows_kernel<Functor, Stored, Pass>
        <<<grid, kThreads, 0, stream>>>(loss, arguments, memory, row_cut<Stored, Pass>(arguments));
  } else {
    loss_tiles_kernel<Functor, Stored, Pass>
        <<<grid, kThreads, 0, stream>>>(loss, arguments, memory);
  }
  check_launch("loss kernel", blocks, kThreads);
}

// Finds the pass that a call asks for and hands it to `use`.
template <typename Stored, typename Use>
auto with_pass(const LossArguments& arguments, Use use) {
  const bool sum = arguments.reduce && arguments.value;
  const bool value = arguments.value && !sum;
  const bool gradient = arguments.grad_input || arguments.grad_target;
  const bool grad_output = arguments.grad_output.data && arguments.grad_output.period != 1;
  const auto packed = [&](const Operand& operand) {
    return operand.flat(arguments.size) &&
           reinterpret_cast<uintptr_t>(operand.data) % kPackBytes == 0;
  };
  const bool row = arguments.size > 0 && arguments.target.inner == 1 &&
                   arguments.target.period > 1 &&
                   arguments.target.period % Pack<Stored>::kCount == 0 &&
                   reinterpret_cast<uintptr_t>(arguments.target.data) % kPackBytes == 0;
  const Walk walk = !packed(arguments.input)                        ? Walk::general
                    : grad_output && !packed(arguments.grad_output) ? Walk::general
                    : packed(arguments.target)                      ? Walk::flat
                    : row && !grad_output                           ? Walk::rows
                                                                    : Walk::general;
#define LOSSCLI_PASS(...)                                            \
  return walk == Walk::flat   ? use(Pass<__VA_ARGS__, Walk::flat>()) \
         : walk == Walk::rows ? use(Pass<__VA_ARGS__, Walk::rows>()) \
                              : use(Pass<__VA_ARGS__, Walk::general>())
  if (sum && gradient) LOSSCLI_PASS(true, false, true, false);
  if (sum) LOSSCLI_PASS(true, false, false, false);
  if (value && gradient) LOSSCLI_PASS(false, true, true, false);
  if (value) LOSSCLI_PASS(false, true, false, false);
  if (grad_output)
    return walk == Walk::flat ? use(Pass<false, false, true, true, Walk::flat>())
                              : use(Pass<false, false, true, true, Walk::general>());
  LOSSCLI_PASS(false, false, true, false);
#undef LOSSCLI_PASS
}

}  // namespace losscli::cuda
