// The loss and its gradients in one pass: which kernel takes a call, and how it is launched.
#pragma once

#include "launch.h"
#include "rows_kernel.cuh"
#include "tiles_kernel.cuh"

namespace losscli::cuda {

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
