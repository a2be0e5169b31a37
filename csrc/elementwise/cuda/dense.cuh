// The loss and its gradients in one pass: which kernel takes a call, and how it is launched.
#pragma once

#include <algorithm>

#include "block_kernel.cuh"
#include "flat_kernel.cuh"
#include "general_kernel.cuh"
#include "launch.h"
#include "sums.h"

namespace losscli::cuda {

// Finds the cut of a call; hands its shape and the number of blocks that take tiles to `use`.
template <typename Stored, typename Pass, typename Use>
auto with_cut(const LossArguments& arguments, Use use) {
  constexpr Cuts kCuts = Pass::cuts(sizeof(Stored));
  const auto with = [&](auto shape, const Cut& cut) {
    using Shape = decltype(shape);
    const int64_t most =
        arguments.skip_unit_gradient ? std::min(cut.blocks, kRescaleBlocks) : cut.blocks;
    constexpr int64_t kTile = int64_t{Shape::threads} * Shape::loads * Pack<Stored>::kCount;
    const int64_t tiles = divide_up(arguments.size, kTile);
    return use(shape, std::clamp<int64_t>(divide_up(tiles, cut.each), 1, most));
  };
  constexpr Cut kSmall = kCuts.small, kLarge = kCuts.large;
  if (arguments.size * static_cast<int64_t>(sizeof(Stored)) < kCuts.large_bytes)
    return with(Shape<kSmall.threads, kSmall.loads, kSmall.resident, kSmall.past_first_level,
                      kSmall.row_ahead>(),
                kSmall);
  return with(Shape<kLarge.threads, kLarge.loads, kLarge.resident, kLarge.past_first_level,
                    kLarge.row_ahead>(),
              kLarge);
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

// By one block, whatever the walk would have been.
template <typename Functor, typename Stored, typename Wanted>
void launch_few(const Functor& loss, const LossArguments& arguments, cudaStream_t stream) {
  using Few = Pass<Wanted::sum, false, Wanted::gradient, false, Walk::flat>;
  constexpr int kPack = Pack<Stored>::kCount;
  const int64_t period = arguments.target.period;
  const bool packed = aligned(arguments.input.data) && aligned(arguments.target.data) &&
                      arguments.size % kPack == 0 && period % kPack == 0 &&
                      (period > kPack || period == arguments.size);
  launch_grid(packed ? loss_block_kernel<Functor, Stored, Few, kPack>
                     : loss_block_kernel<Functor, Stored, Few, 1>,
              1, packed ? kFewThreads<kPack> : kFewThreads<1>, false, stream,
              FewArguments(arguments, packed ? kPack : 1), loss);
}

template <template <typename> class Loss, typename Stored, typename Pass>
void launch_loss(const LossArguments& arguments, const LaunchContext& context) {
  using Functor = Loss<RealOf<Stored>>;
  const Functor loss(arguments.parameters);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  if constexpr (!Pass::value && !Pass::grad_output) {
    if (takes_few(arguments)) return launch_few<Functor, Stored, Pass>(loss, arguments, stream);
  }
  with_cut<Stored, Pass>(arguments, [&](auto shape, int64_t blocks) {
    using Shape = decltype(shape);
    const auto launch = [&](const GridSum& sum) {
      const bool cluster = sum.ending == Ending::cluster;
      const int64_t grid = blocks + (Pass::sum && sum.ending == Ending::posted);
      if constexpr (Pass::walk == Walk::general) {
        launch_grid(loss_general_kernel<Functor, Stored, Pass, Shape>, grid, Shape::threads,
                    cluster, stream, loss, arguments, sum);
      } else {
        launch_grid(loss_flat_kernel<Functor, Stored, Pass, Shape>, grid, Shape::threads, cluster,
                    stream, loss, arguments, sum,
                    row_steps<Stored, Pass, Shape>(arguments, blocks));
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
  constexpr int kPack = Pack<Stored>::kCount;
  const int64_t period = arguments.target.period;
  const bool row = arguments.size > 0 && arguments.target.inner == 1 && period > 1 &&
                   period < kMostRow && period % kPack == 0 && aligned(arguments.target.data);
  const Walk walk = !packed(arguments.input)                        ? Walk::general
                    : grad_output && !packed(arguments.grad_output) ? Walk::general
                    : packed(arguments.target)                      ? Walk::flat
                    : !row || grad_output                           ? Walk::general
                                                                    : Walk::rows;
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
