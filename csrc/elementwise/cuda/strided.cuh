// Operands of any strides and dtypes: which kernel takes a call, and how it is launched.
#pragma once

#include "core/cuda/launch.h"
#include "elementwise/cuda/grid.cuh"
#include "elementwise/cuda/instance.h"
#include "elementwise/cuda/staged_kernel.cuh"
#include "elementwise/cuda/strided_kernel.cuh"

namespace losscli::cuda {

template <typename Loss, typename Real>
struct Strided {
  static constexpr int kPack = kPackBytes / sizeof(Real);

  // Few passes, so that few kernels are compiled: one writes values, gradients or both.
  template <typename Use>
  static auto with_pass(const ElementwiseArguments& arguments, Use use) {
    const Asked asked(arguments);
    if (asked.sum) return asked.gradient ? use(SumGradientPass()) : use(SumPass());
    return asked.incoming_tensor ? use(IncomingTensorPass()) : use(ValueGradientPass());
  }

  static const LaunchPolicy& policy(const Policies& policies,
                                    const ElementwiseArguments& arguments) {
    const int64_t bytes = arguments.space.size * item_bytes(arguments.operands[0].dtype);
    return bytes < policies.large_bytes ? policies.small : policies.large;
  }

  // Finds the kernel of a call; hands its shape, the elements that it takes at a time and the
  // number of blocks to `use`.
  template <typename Pass, typename Use>
  static auto with_shape(const ElementwiseArguments& arguments, Use use) {
    constexpr int kOperands = kReads<Loss, Pass>;
    const auto with = [&](auto count_) {
      constexpr int kCount = decltype(count_)::value;
      using Shape = Shape<kStridedThreads, strided_loads(kCount > 1, kOperands, sizeof(Real)),
                          strided_resident(kCount > 1)>;
      constexpr int64_t kTile = int64_t{Shape::threads} * Shape::loads * kCount;
      const int64_t tiles = divide_up(arguments.space.size, kTile);
      return use(Shape(), count_, blocks_for(policy(kStrided, arguments), tiles));
    };
    if (takes_packs<Loss, Pass>(arguments, kPack))
      return with(std::integral_constant<int, kPack>());
    return with(std::integral_constant<int, 1>());
  }

  template <typename Pass>
  static auto staged_arguments(const ElementwiseArguments& arguments, const GridSum& memory) {
    constexpr int kOperands = kReads<Loss, Pass>;
    return StagedArguments<kOperands, Loss::signature.operands>(
        arguments, memory, staged_side(Loss::signature.operands, sizeof(Real)),
        [&](int k) -> const Operand& { return read_operand<Loss, Pass>(arguments, k); });
  }

  static int64_t blocks(const ElementwiseArguments& arguments, Access access) {
    return with_pass(arguments, [&](auto pass) {
      using Pass = decltype(pass);
      if (access == Access::staged)
        return blocks_for(policy(kStaged, arguments),
                          staged_arguments<Pass>(arguments, GridSum()).tiles);
      return with_shape<Pass>(arguments, [](auto, auto, int64_t blocks) { return blocks; });
    });
  }

  template <typename Pass, auto kernel, typename Shape, typename KernelArguments>
  static Status launch_kernel(const char* name, const ElementwiseArguments& arguments,
                              int64_t blocks, const GridSum& memory, const LaunchContext& context,
                              const KernelArguments& kernel_arguments) {
    if constexpr (Pass::backward)
      blocks = backward_blocks<kernel>(arguments, context.device, Shape::threads, blocks);
    const bool collects = Pass::sum && memory.combine == Combine::collector;
    return cuda::launch(name, kernel, dim3(static_cast<unsigned>(blocks + collects)),
                        Shape::threads, Pass::sum && memory.combine == Combine::cluster,
                        context.stream, Loss(arguments.parameters), kernel_arguments);
  }

  static Status launch(const ElementwiseArguments& arguments, Access access, const GridSum& memory,
                       const LaunchContext& context) {
    return with_pass(arguments, [&](auto pass) {
      using Pass = decltype(pass);
      if (access == Access::staged) {
        constexpr int kSide = staged_side(Loss::signature.operands, sizeof(Real));
        using Shape = Shape<kSide * kStagedLines, kSide / kStagedLines, staged_resident(kSide)>;
        const auto staged = staged_arguments<Pass>(arguments, memory);
        return launch_kernel<Pass, loss_staged_kernel<Loss, Real, Pass, Shape>, Shape>(
            "loss_staged_kernel", arguments, blocks_for(policy(kStaged, arguments), staged.tiles),
            memory, context, staged);
      }
      return with_shape<Pass>(arguments, [&](auto shape, auto count_, int64_t blocks) {
        using Shape = decltype(shape);
        constexpr int kCount = decltype(count_)::value;
        const StridedArguments<kReads<Loss, Pass>, Loss::signature.operands> strided(
            arguments, memory,
            [&](int k) -> const Operand& { return read_operand<Loss, Pass>(arguments, k); });
        return launch_kernel<Pass, loss_strided_kernel<Loss, Real, Pass, kCount, Shape>, Shape>(
            "loss_strided_kernel", arguments, blocks, memory, context, strided);
      });
    });
  }

  static constexpr Instance instance{blocks, launch};
};

}  // namespace losscli::cuda
