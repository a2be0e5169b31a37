// The loss and its gradients in one Pass::
#pragma once

#include "launch.h"
#include "reduce.cuh"

namespace losscli::cuda {

// What a pass produces, known when it is compiled.
template <bool sum_, bool value_, bool gradient_, bool grad_output_, bool flat_>
struct Pass {
  static constexpr bool sum = sum_;                  // the loss as one scaled sum
  static constexpr bool value = value_;              // the loss of each element
  static constexpr bool gradient = gradient_;        // of either operand, of both
  static constexpr bool grad_output = grad_output_;  // multiplied by a tensor, not by one number
  static constexpr bool flat = flat_;                // every operand lies contiguous and aligned
  static constexpr Cut cut = sum && !gradient ? kRead : kWrite;

  template <typename Stored>
  static constexpr int tile = cut.threads * cut.loads * Pack<Stored>::kCount;
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

  __device__ __forceinline__ void element(Stored input, Stored target, Stored grad_output,
                                          Real& sum, Stored& value_out, Stored& input_out,
                                          Stored& target_out) const {
    const Real x = widen(input), y = widen(target);
    if constexpr (Pass::sum) sum += loss.value(x, y);
    if constexpr (Pass::value) narrow(loss.value(x, y), value_out);
    if constexpr (Pass::gradient) {
      const auto gradient = loss.gradient(x, y);
      const Real factor = Pass::grad_output ? scale * widen(grad_output) : scale;
      narrow(factor * gradient.input, input_out);
      narrow(factor * gradient.target, target_out);
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

template <typename Loss, typename Stored, typename Pass>
__global__ void __launch_bounds__(Pass::cut.threads, Pass::cut.resident)
    loss_kernel(const Loss loss, const LossArguments arguments, const GridSum memory) {
  using Real = RealOf<Stored>;
  using P = Pack<Stored>;
  constexpr int kThreads = Pass::cut.threads, kLoads = Pass::cut.loads;
  constexpr int kTile = Pass::template tile<Stored>;

  double factor = arguments.scale;
  if (Pass::gradient && !Pass::grad_output && arguments.grad_output.data) {
    const double incoming = widen(*static_cast<const Stored*>(arguments.grad_output.data));
    if (arguments.skip_unit_gradient && incoming == 1) return;
    factor *= incoming;
  }
  const Worker<Loss, Stored, Pass> worker{loss, static_cast<Real>(factor),
                                          static_cast<Stored*>(arguments.value),
                                          static_cast<Stored*>(arguments.grad_input),
                                          static_cast<Stored*>(arguments.grad_target)};
  const auto* flat_input = static_cast<const P*>(arguments.input.data);
  const auto* flat_target = static_cast<const P*>(arguments.target.data);
  const auto* flat_output = static_cast<const P*>(arguments.grad_output.data);

  double carried = 0;
  for (int64_t base = int64_t{blockIdx.x} * kTile; base < arguments.size;
       base += int64_t{gridDim.x} * kTile) {
    // A tile's part of this thread in Real, the tiles' in double.
    Real sum = 0;
    if (base + kTile <= arguments.size) {
      P input[kLoads], target[kLoads], grad_output[Pass::grad_output ? kLoads : 1];
      if constexpr (Pass::flat) {
        const int64_t first = base / P::kCount + threadIdx.x;
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
          input[u] = flat_input[first + u * kThreads];
          target[u] = flat_target[first + u * kThreads];
          if constexpr (Pass::grad_output) grad_output[u] = flat_output[first + u * kThreads];
        }
      } else {
        const TileReader<Stored, kTile> inputs(arguments.input, base),
            targets(arguments.target, base), outputs(arguments.grad_output, base);
#pragma unroll
        for (int u = 0; u < kLoads; ++u) {
          const int offset = (u * kThreads + threadIdx.x) * P::kCount;
          input[u] = inputs.pack(offset);
          target[u] = targets.pack(offset);
          if constexpr (Pass::grad_output) grad_output[u] = outputs.pack(offset);
        }
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u)
        worker.pack(input[u], target[u], grad_output[Pass::grad_output ? u : 0],
                    base + (u * kThreads + threadIdx.x) * P::kCount, sum);
    } else {
      const TileReader<Stored, kTile> inputs(arguments.input, base),
          targets(arguments.target, base), outputs(arguments.grad_output, base);
      const int count = static_cast<int>(arguments.size - base);
      for (int offset = threadIdx.x; offset < count; offset += kThreads)
        worker.single(inputs.at(offset), targets.at(offset),
                      Pass::grad_output ? outputs.at(offset) : Stored(), base + offset, sum);
    }
    carried += sum;
  }
  if constexpr (Pass::sum) {
    grid_sum(carried, memory, [&](double total) {
      narrow(static_cast<Real>(total * arguments.scale), *worker.value);
    });
  }
}

template <typename Stored, typename Pass>
int64_t block_count(const LossArguments& arguments) {
  const int64_t tiles = divide_up(arguments.size, Pass::template tile<Stored>);
  const int64_t most = arguments.skip_unit_gradient ? kRescaleBlocks : Pass::cut.max_blocks;
  return std::clamp<int64_t>(tiles, 1, most);
}

template <template <typename> class Loss, typename Stored, typename Pass>
void launch_loss(const LossArguments& arguments, const LaunchContext& context) {
  using Functor = Loss<RealOf<Stored>>;
  const int64_t blocks = block_count<Stored, Pass>(arguments);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const GridSum memory(context.workspace, blocks);
  if (Pass::sum && blocks > 1)
    check(cudaMemsetAsync(memory.arrived, 0, GridSum::counter_bytes(blocks), stream),
          "clearing the counters of a sum");
  loss_kernel<Functor, Stored, Pass>
      <<<static_cast<unsigned>(blocks), Pass::cut.threads, 0, stream>>>(
          Functor(arguments.parameters), arguments, memory);
  check_launch("loss_kernel", blocks, Pass::cut.threads);
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
  const bool flat = packed(arguments.input) && packed(arguments.target) &&
                    (!grad_output || packed(arguments.grad_output));
#define LOSSCLI_PASS(...) \
  return flat ? use(Pass<__VA_ARGS__, true>()) : use(Pass<__VA_ARGS__, false>())
  if (sum && gradient) LOSSCLI_PASS(true, false, true, false);
  if (sum) LOSSCLI_PASS(true, false, false, false);
  if (value && gradient) LOSSCLI_PASS(false, true, true, false);
  if (value) LOSSCLI_PASS(false, true, false, false);
  if (grad_output) LOSSCLI_PASS(false, false, true, true);
  LOSSCLI_PASS(false, false, true, false);
#undef LOSSCLI_PASS
}

}  // namespace losscli::cuda
