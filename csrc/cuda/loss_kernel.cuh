// The loss and its gradients in one pass: which kernel takes a call, and how it is launched.
#pragma once

#include "launch.h"
#include "rows_kernel.cuh"
#include "sums.h"
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
  if (status == cudaSuccess) return;
  cudaGetLastError();
  check(status, launch_name("loss kernel", blocks, threads).c_str());
}

template <template <typename> class Loss, typename Stored, typename Pass>
void launch_loss(const LossArguments& arguments, const LaunchContext& context) {
  using Functor = Loss<RealOf<Stored>>;
  constexpr int kThreads = Pass::template cut<Stored>.threads;
  const Functor loss(arguments.parameters);
  const int64_t blocks = block_count<Stored, Pass>(arguments);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const auto launch = [&](const GridSum& sum) {
    if constexpr (Pass::walk == Walk::rows) {
      launch_grid(loss_rows_kernel<Functor, Stored, Pass>, blocks, kThreads, sum.cluster, stream,
                  loss, arguments, sum, row_cut<Stored, Pass>(arguments));
    } else {
      launch_grid(loss_tiles_kernel<Functor, Stored, Pass>, blocks, kThreads, sum.cluster, stream,
                  loss, arguments, sum);
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
