// The loss and its gradients in one pass: which kernel takes a call, and how it is launched.
#pragma once

#include <algorithm>

#include "block_kernel.cuh"
#include "flat_kernel.cuh"
#include "general_kernel.cuh"
#include "launch.h"
#include "rows_kernel.cuh"
#include "sums.h"

namespace losscli::cuda {

// Finds the cut of a call; hands its shape and the number of blocks to `use`.
template <typename Stored, typename Pass, typename Use>
auto with_cut(const LossArguments& arguments, Use use) {
  constexpr Cuts kCuts = Pass::cuts(sizeof(Stored));
  const auto with = [&](auto shape, int64_t most) {
    using Shape = decltype(shape);
    if (arguments.skip_unit_gradient) most = std::min(most, kRescaleBlocks);
    if constexpr (Pass::walk == Walk::rows) {
      const RowCut cut = row_cut<Stored, Shape>(arguments, most);
      return use(shape, int64_t{cut.across} * cut.down);
    } else {
      constexpr int64_t kTile = int64_t{Shape::threads} * Shape::loads * Pack<Stored>::kCount;
      return use(shape, std::clamp<int64_t>(divide_up(arguments.size, kTile), 1, most));
    }
  };
  constexpr Cut kSmall = kCuts.small, kLarge = kCuts.large;
  if (arguments.size * static_cast<int64_t>(sizeof(Stored)) < kCuts.large_bytes)
    return with(Shape<kSmall.threads, kSmall.loads, kSmall.resident, kSmall.past_first_level,
                      kSmall.each>(),
                kSmall.blocks);
  return with(
      Shape<kLarge.threads, kLarge.loads, kLarge.resident, kLarge.past_first_level, kLarge.each>(),
      kLarge.blocks);
}

template <typename Stored, typename Pass>
int64_t block_count(const LossArguments& arguments) {
  return with_cut<Stored, Pass>(arguments, [](auto, int64_t blocks) { return blocks; });
}

// Launches a kernel, its grid one cluster where asked for.
template <typename... Parameters, typename... Arguments>
void launch_grid(void (*kernel)(Parameters...), int64_t blocks, int threads, bool cluster,
                 cudaStream_t stream, const Arguments&... arguments) {
  const auto grid = static_cast<unsigned>(blocks);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = grid;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = cluster ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status != cudaSuccess) check(status, launch_name("loss kernel", blocks, threads).c_str());
}

template <template <typename> class Loss, typename Stored, typename Pass>
void launch_loss(const LossArguments& arguments, const LaunchContext& context) {
  using Functor = Loss<RealOf<Stored>>;
  const Functor loss(arguments.parameters);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if constexpr (!Pass::value && !Pass::grad_output && Pass::walk != Walk::general) {
    const bool few = arguments.size <= kFewElements && arguments.strategy == Strategy::single_pass;
    if (few && (Pass::walk == Walk::flat || arguments.target.period > Pack<Stored>::kCount)) {
      using Few = losscli::cuda::Pass<Pass::sum, false, Pass::gradient, false, Walk::flat>;
      launch_grid(loss_block_kernel<Functor, Stored, Few>, 1, kFewThreads<Stored>, false, stream,
                  loss, FewArguments(arguments, Pack<Stored>::kCount));
      return;
    }
  }
  with_cut<Stored, Pass>(arguments, [&](auto shape, int64_t blocks) {
    using Shape = decltype(shape);
    const auto launch = [&](const GridSum& sum) {
      if constexpr (Pass::walk == Walk::rows) {
        launch_grid(loss_rows_kernel<Functor, Stored, Pass, Shape>, blocks, Shape::threads,
                    sum.ending == Ending::cluster, stream, loss, arguments, sum,
                    row_cut<Stored, Shape>(arguments, blocks));
      } else if constexpr (Pass::walk == Walk::flat) {
        launch_grid(loss_flat_kernel<Functor, Stored, Pass, Shape>, blocks, Shape::threads,
                    sum.ending == Ending::cluster, stream, loss, arguments, sum);
      } else {
        launch_grid(loss_general_kernel<Functor, Stored, Pass, Shape>, blocks, Shape::threads,
                    sum.ending == Ending::cluster, stream, loss, arguments, sum);
      }
    };
    if constexpr (Pass::sum) {
      const SumMemory memory(arguments, context, blocks);
      launch(memory.sum);
      if (arguments.strategy == Strategy::two_pass || arguments.strategy == Strategy::tree)
        add_sums<Stored>(arguments, context, blocks);
    } else {
      launch(GridSum());
    }
  });
}

// Finds the pass that a call asks for and hands it to `use`.
template <typename Stored, typename Use>
auto with_pass(const LossArguments& arguments, Use use) {
  const bool sum = arguments.reduce && arguments.value;
  const bool value = arguments.value && !sum;
  const bool gradient = arguments.grad_input || arguments.grad_target;
  const bool grad_output = arguments.grad_output.data && arguments.grad_output.period != 1;
  const auto packed = [&](const Operand& operand) {
    return operand.flat(arguments.size) && aligned(operand.data);
  };
  const bool row = arguments.size > 0 && arguments.target.inner == 1 &&
                   arguments.target.period > 1 &&
                   arguments.target.period % Pack<Stored>::kCount == 0 &&
                   arguments.target.period <= kMostRowPacks * Pack<Stored>::kCount &&
                   aligned(arguments.target.data);
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
