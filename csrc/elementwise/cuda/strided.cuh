// Operands of any strides and dtypes: which kernel takes a call, and how it is launched.
#pragma once

#include "core/cuda/launch.h"
#include "elementwise/cuda/grid.cuh"
#include "elementwise/cuda/instance.h"
#include "elementwise/cuda/lines_kernel.cuh"
#include "elementwise/cuda/shifted_kernel.cuh"
#include "elementwise/cuda/squares_kernel.cuh"
#include "elementwise/cuda/staged_kernel.cuh"
#include "elementwise/cuda/strided_kernel.cuh"

namespace losscli::cuda {

// How a warp or a block walks over operands that are not staged.
enum class Walk { lines, shifted, strided };

template <Walk walk>
using WalkIs = std::integral_constant<Walk, walk>;

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

  // Packs that are not aligned, and squares, are for passes in float that write nothing: elsewhere
  // the writes take the time.
  template <typename Pass>
  static constexpr bool reads_only = takes_runs<Real, Pass>;

  // Finds the kernel of a call; hands its shape, the elements that it takes at a time, how it
  // walks, how lines are divided, and the number of blocks to `use`.
  template <typename Pass, typename Use>
  static auto with_shape(const ElementwiseArguments& arguments, Use use) {
    constexpr int kOperands = kReads<Loss, Pass>;
    const int64_t length = arguments.space.sizes[0];
    const auto segmented = [&](auto shape, auto count_, auto walk, int64_t of_line) {
      LaunchPolicy divided = policy(kStrided, arguments);
      LineRuns runs{of_line, 1};
      if (reads_only<Pass> && divided.each > 1) {  // runs in the place of segments far apart
        runs.length = static_cast<int>(std::min<int64_t>(kLineRun, of_line));
        runs.of_line = divide_up(of_line, runs.length);
        divided.each = 1;
      }
      const int64_t all = length > 0 ? arguments.space.size / length * runs.of_line : 0;
      const int64_t tiles = divide_up(all, kLineThreads / kWarp);
      return use(shape, count_, walk, runs, blocks_for(divided, tiles));
    };
    const auto lines = [&](auto count_) {
      constexpr int kCount = decltype(count_)::value;
      using Shape =
          Shape<kLineThreads, line_loads(kCount, kOperands, Pass::value),
                line_resident(kCount, kOperands, Pass::writes, Pass::value, sizeof(Real))>;
      return segmented(Shape(), count_, WalkIs<Walk::lines>(),
                       divide_up(length, segment<Pass>(kCount)));
    };
    const auto takes = [&](int count) {
      return takes_packs<Loss, Pass>(arguments, count) &&
             fills_segments(length, segment<Pass>(count));
    };
    if constexpr (sizeof(Real) == 4) {
      if (is_in_16_bits<Pass>(arguments) && takes(2 * kPack))
        return lines(std::integral_constant<int, 2 * kPack>());
    }
    if (takes(kPack)) return lines(std::integral_constant<int, kPack>());
    if constexpr (reads_only<Pass>) {
      constexpr int kLoads = shifted_loads(kOperands);
      using Shifted = Shape<kLineThreads, kLoads, kShiftedResident>;
      const auto shifts = [&](int count) {
        return takes_shifted<Loss, Pass>(arguments, count) &&
               fills_segments(length / count, int64_t{kWarp} * kLoads);
      };
      const auto shifted = [&](auto count_) {
        return segmented(Shifted(), count_, WalkIs<Walk::shifted>(),
                         shifted_segments(length, count_(), kLoads));
      };
      if (shifts(2 * kPack)) return shifted(std::integral_constant<int, 2 * kPack>());
      if (shifts(kPack)) return shifted(std::integral_constant<int, kPack>());
    }
    if (fills_segments(length, segment<Pass>(1)) && reaches<Pass>(arguments))
      return lines(std::integral_constant<int, 1>());
    // Short lines.
    const auto strided = [&](auto shape, auto count_) {
      using Shape = decltype(shape);
      const int64_t tiles =
          divide_up(arguments.space.size, int64_t{Shape::threads} * Shape::loads * count_());
      return use(shape, count_, WalkIs<Walk::strided>(), LineRuns(),
                 blocks_for(policy(kStrided, arguments), tiles));
    };
    const auto packs = [&](auto count_) {
      constexpr int kCount = decltype(count_)::value;
      return strided(Shape<kStridedThreads, strided_pack_loads(kCount, kOperands), 2>(), count_);
    };
    if constexpr (sizeof(Real) == 4) {
      if (is_in_16_bits<Pass>(arguments) && takes_packs<Loss, Pass>(arguments, 2 * kPack))
        return packs(std::integral_constant<int, 2 * kPack>());
    }
    if (takes_packs<Loss, Pass>(arguments, kPack))
      return packs(std::integral_constant<int, kPack>());
    return strided(
        Shape<kStridedThreads, strided_loads(kOperands, sizeof(Real)), kStridedResident>(),
        std::integral_constant<int, 1>());
  }

  // Elements of a line that a warp takes at a time.
  template <typename Pass>
  static constexpr int segment(int count) {
    return kWarp * count * line_loads(count, kReads<Loss, Pass>, Pass::value);
  }

  template <typename Pass>
  static bool reaches(const ElementwiseArguments& arguments) {
    bool all = true;
    for (int k = 0; k < kReads<Loss, Pass>; ++k)
      all &= reaches_segments(read_operand<Loss, Pass>(arguments, k), segment<Pass>(1));
    return all;
  }

  template <typename Pass>
  static bool is_in_16_bits(const ElementwiseArguments& arguments) {
    bool all = true;
    for (int k = 0; k < kReads<Loss, Pass>; ++k)
      all &= item_bytes(read_operand<Loss, Pass>(arguments, k).dtype) == 2;
    return all;
  }

  // Hands what a kernel takes that goes by tiles, the side of its threads' squares, 0 where tiles
  // are staged in shared memory, and its shape to `use`.
  template <typename Pass, typename Use>
  static auto with_staged(const ElementwiseArguments& arguments, const GridSum& memory, Use use) {
    constexpr int kOperands = kReads<Loss, Pass>;
    const auto staged = [&](int side, int run) {
      return StagedArguments<kOperands, Loss::signature.operands>(
          arguments, memory, side, run,
          [&](int k) -> const Operand& { return read_operand<Loss, Pass>(arguments, k); });
    };
    const auto in_squares = [&](const auto& squares, auto count_) {
      constexpr int kCount = decltype(count_)::value;
      return use(squares, count_,
                 Shape<kSquareThreads, kCount, square_resident(kCount, kOperands)>());
    };
    if constexpr (reads_only<Pass>) {
      const int run = policy(kStaged, arguments).each > 1 ? kSquareRun : 1;
      if constexpr (kOperands <= 2) {  // for the registers
        const auto wide = staged(square_side(2 * kPack), run);
        if (is_in_16_bits<Pass>(arguments) && lies_in_squares(wide, 2 * kPack) &&
            fills_segments(wide.across, square_side(2 * kPack)) &&
            fills_segments(wide.down, square_side(2 * kPack)))
          return in_squares(wide, std::integral_constant<int, 2 * kPack>());
      }
      const auto squares = staged(square_side(kPack), run);
      if (lies_in_squares(squares, kPack))
        return in_squares(squares, std::integral_constant<int, kPack>());
    }
    constexpr int kSide = staged_side(Loss::signature.operands, sizeof(Real));
    return use(staged(kSide, 1), std::integral_constant<int, 0>(),
               Shape<kSide * kStagedLines, kSide / kStagedLines, staged_resident(kSide)>());
  }

  // A block takes one run of squares.
  template <typename Arguments>
  static int64_t staged_blocks(const ElementwiseArguments& arguments, const Arguments& staged,
                               bool squares) {
    LaunchPolicy divided = policy(kStaged, arguments);
    if (squares) divided.each = 1;
    return blocks_for(divided, staged.tiles);
  }

  static int64_t blocks(const ElementwiseArguments& arguments, Access access) {
    return with_pass(arguments, [&](auto pass) {
      using Pass = decltype(pass);
      if (access == Access::staged)
        return with_staged<Pass>(arguments, GridSum(), [&](const auto& staged, auto count, auto) {
          return staged_blocks(arguments, staged, count > 0);
        });
      return with_shape<Pass>(arguments,
                              [](auto, auto, auto, LineRuns, int64_t blocks) { return blocks; });
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
      if (access == Access::staged)
        return with_staged<Pass>(
            arguments, memory, [&](const auto& staged, auto count_, auto shape) {
              using Shape = decltype(shape);
              constexpr int kCount = decltype(count_)::value;
              const int64_t blocks = staged_blocks(arguments, staged, kCount > 0);
              if constexpr (kCount > 0) {
                return launch_kernel<Pass, loss_squares_kernel<Loss, Real, Pass, kCount, Shape>,
                                     Shape>("loss_squares_kernel", arguments, blocks, memory,
                                            context, staged);
              } else {
                return launch_kernel<Pass, loss_staged_kernel<Loss, Real, Pass, Shape>, Shape>(
                    "loss_staged_kernel", arguments, blocks, memory, context, staged);
              }
            });
      return with_shape<Pass>(arguments, [&](auto shape, auto count_, auto walk_, LineRuns runs,
                                             int64_t blocks) {
        using Shape = decltype(shape);
        constexpr int kCount = decltype(count_)::value, kOperands = kReads<Loss, Pass>;
        constexpr int kOwn = Loss::signature.operands;
        constexpr Walk kWalk = decltype(walk_)::value;
        const auto find = [&](int k) -> const Operand& {
          return read_operand<Loss, Pass>(arguments, k);
        };
        if constexpr (kWalk == Walk::strided) {
          const StridedArguments<kOperands, kOwn> strided(arguments, memory, kCount, find);
          return launch_kernel<Pass, loss_strided_kernel<Loss, Real, Pass, kCount, Shape>, Shape>(
              "loss_strided_kernel", arguments, blocks, memory, context, strided);
        } else {
          const LineArguments<kOperands, kOwn> lines(arguments, memory, runs, find);
          if constexpr (kWalk == Walk::shifted) {
            return launch_kernel<Pass, loss_shifted_kernel<Loss, Real, Pass, kCount, Shape>, Shape>(
                "loss_shifted_kernel", arguments, blocks, memory, context, lines);
          } else {
            return launch_kernel<Pass, loss_lines_kernel<Loss, Real, Pass, kCount, Shape>, Shape>(
                "loss_lines_kernel", arguments, blocks, memory, context, lines);
          }
        }
      });
    });
  }

  static constexpr Instance instance{blocks, launch};
};

}  // namespace losscli::cuda
