// Operands of any strides and dtypes: which kernel takes a call, and how it is launched.
#pragma once

#include <optional>

#include "core/cuda/launch.h"
#include "elementwise/cuda/instance.h"
#include "elementwise/cuda/lines_kernel.cuh"
#include "elementwise/cuda/panels_kernel.cuh"
#include "elementwise/cuda/shifted_kernel.cuh"
#include "elementwise/cuda/squares_kernel.cuh"
#include "elementwise/cuda/staged_kernel.cuh"
#include "elementwise/cuda/strided_kernel.cuh"

namespace losscli::cuda {

// How a warp or a block walks over operands that are not staged.
enum class Walk { lines, shifted, panels, strided };

template <Walk walk, Second second = Second::as_others>
struct WalkIs {
  static constexpr Walk kWalk = walk;
  static constexpr Second kSecond = second;
};

template <Second second>
using SecondIs = std::integral_constant<Second, second>;

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

  // Packs that are not aligned are for passes in float that write nothing: elsewhere the writes
  // take the time. Squares are for those in float, which have the registers.
  template <typename Pass>
  static constexpr bool reads_only = takes_runs<Real, Pass>;
  template <typename Pass>
  static constexpr bool takes_squares = sizeof(Real) == 4 && !Pass::incoming_tensor;

  // Finds the kernel of a call; hands its shape, the elements that it takes at a time, how it
  // walks, how lines or panels are divided, and the number of blocks to `use`.
  template <typename Pass, typename Result, typename Use>
  static Result with_shape(const ElementwiseArguments& arguments, Use use) {
    constexpr int kOperands = kReads<Loss, Pass>;
    using Wide = std::integral_constant<int, 2 * kPack>;  // of items of 2 bytes
    using Packs = std::integral_constant<int, kPack>;
    using Single = std::integral_constant<int, 1>;
    const Space& space = arguments.space;
    const int64_t length = space.sizes[0];
    std::optional<Result> taken;

    const auto segmented = [&](auto shape, auto count_, auto walk, int64_t of_line) {
      LaunchPolicy divided = policy(kStrided, arguments);
      LineRuns runs{of_line, 1};
      if (reads_only<Pass> && divided.each > 1) {  // runs in the place of segments far apart
        runs.length = static_cast<int>(std::min<int64_t>(kLineRun, of_line));
        runs.of_line = divide_up(of_line, runs.length);
        divided.each = 1;
      }
      const int64_t all = length > 0 ? space.size / length * runs.of_line : 0;
      const int64_t tiles = divide_up(all, kLineThreads / kWarp);
      taken = use(shape, count_, walk, runs, blocks_for(divided, tiles));
    };
    const auto lines = [&](auto count_) {
      constexpr int kCount = decltype(count_)::value;
      if (taken || !fills_segments(length, segment<Pass>(kCount))) return;
      if (kCount > 1 ? !takes_packs<Loss, Real, Pass>(arguments, kCount)
                     : !reaches<Pass>(arguments))
        return;
      using Lines =
          Shape<kLineThreads, line_loads(kCount, kOperands, Pass::value),
                line_resident(kCount, kOperands, Pass::writes, Pass::value, sizeof(Real))>;
      segmented(Lines(), count_, WalkIs<Walk::lines>(), divide_up(length, segment<Pass>(kCount)));
    };
    const auto panels = [&](auto count_, auto second_) {
      constexpr int kCount = decltype(count_)::value;
      constexpr Second kSecond = decltype(second_)::value;
      constexpr int kFresh = kOperands - (kSecond != Second::as_others);
      using Panels = Shape<kPanelThreads, panel_loads(kCount, kFresh),
                           panel_resident(kCount, kFresh, Pass::writes, sizeof(Real))>;
      if (taken || space.dimensions < 2 || space.size == 0 ||
          !takes_packs<Loss, Real, Pass>(arguments, kCount))
        return;
      const PanelPlan plan =
          plan_panels(space, kCount, Panels::threads, Panels::loads,
                      kSecond == Second::as_others ? nullptr : &arguments.operands[1]);
      if (takes_panels<Loss, Pass>(arguments, plan, Panels::loads))
        taken = use(Panels(), count_, WalkIs<Walk::panels, kSecond>(), plan,
                    blocks_for(policy(kStrided, arguments), plan.tiles));
    };

    // What repeats along the rows stays in registers.
    if constexpr (!Pass::incoming_tensor) {
      const Operand& second = arguments.operands[1];
      if (space.dimensions > 1 && second.strides[0] != 0 && second.strides[1] == 0) {
        using Repeats = SecondIs<Second::repeats>;
        if constexpr (sizeof(Real) == 4) {
          if (is_in_16_bits<Pass>(arguments, false))
            panels(Wide(), SecondIs<Second::repeats_alike>());
          if (is_in_16_bits<Pass>(arguments, true)) panels(Wide(), Repeats());
        }
        panels(Packs(), Repeats());
      }
    }
    if constexpr (sizeof(Real) == 4) {
      if (is_in_16_bits<Pass>(arguments, false)) lines(Wide());
    }
    lines(Packs());
    if constexpr (reads_only<Pass>) {
      constexpr int kLoads = shifted_loads(kOperands);
      const auto shifted = [&](auto count_) {
        constexpr int kCount = decltype(count_)::value;
        if (!taken && takes_shifted<Loss, Pass>(arguments, kCount) &&
            fills_segments(length / kCount, int64_t{kWarp} * kLoads))
          segmented(Shape<kLineThreads, kLoads, kShiftedResident>(), count_,
                    WalkIs<Walk::shifted>(), shifted_segments(length, kCount, kLoads));
      };
      shifted(Wide());
      shifted(Packs());
    }
    // Short lines.
    if constexpr (sizeof(Real) == 4) {
      if (is_in_16_bits<Pass>(arguments, false)) panels(Wide(), SecondIs<Second::as_others>());
    }
    panels(Packs(), SecondIs<Second::as_others>());
    lines(Single());
    if (!taken) {
      using Strided =
          Shape<kStridedThreads, strided_loads(kOperands, sizeof(Real)), kStridedResident>;
      const int64_t tiles = divide_up(space.size, int64_t{Strided::threads} * Strided::loads);
      taken = use(Strided(), Single(), WalkIs<Walk::strided>(), LineRuns(),
                  blocks_for(policy(kStrided, arguments), tiles));
    }
    return *taken;
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

  // Whether all items, but perhaps the second operand's, are of 2 bytes.
  template <typename Pass>
  static bool is_in_16_bits(const ElementwiseArguments& arguments, bool but_second) {
    bool all = true;
    for (int k = 0; k < kReads<Loss, Pass>; ++k)
      all &=
          (but_second && k == 1) || item_bytes(read_operand<Loss, Pass>(arguments, k).dtype) == 2;
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
                 Shape<kSquareThreads, kCount, square_resident(kCount, kOperands, Pass::writes)>());
    };
    if constexpr (takes_squares<Pass>) {
      const int run = policy(kStaged, arguments).each > 1 ? kSquareRun : 1;
      const auto lies = [&](const auto& squares, int count) {
        return lies_in_squares(squares, count, sizeof(Real)) &&
               (!Pass::value || aligned(arguments.value));
      };
      if constexpr (kOperands <= 2) {  // for the registers
        const auto wide = staged(square_side(2 * kPack), run);
        if (is_in_16_bits<Pass>(arguments, false) && lies(wide, 2 * kPack) &&
            fills_segments(wide.across, square_side(2 * kPack)) &&
            fills_segments(wide.down, square_side(2 * kPack)))
          return in_squares(wide, std::integral_constant<int, 2 * kPack>());
      }
      const auto squares = staged(square_side(kPack), run);
      if (lies(squares, kPack)) return in_squares(squares, std::integral_constant<int, kPack>());
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
      return with_shape<Pass, int64_t>(
          arguments, [](auto, auto, auto, const auto&, int64_t blocks) { return blocks; });
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
      return with_shape<Pass, Status>(arguments, [&](auto shape, auto count_, auto walk_,
                                                     const auto& division, int64_t blocks) {
        using Shape = decltype(shape);
        constexpr int kCount = decltype(count_)::value, kOperands = kReads<Loss, Pass>;
        constexpr int kOwn = Loss::signature.operands;
        constexpr Walk kWalk = decltype(walk_)::kWalk;
        const auto find = [&](int k) -> const Operand& {
          return read_operand<Loss, Pass>(arguments, k);
        };
        if constexpr (kWalk == Walk::strided) {
          const StridedArguments<kOperands, kOwn> strided(arguments, memory, find);
          return launch_kernel<Pass, loss_strided_kernel<Loss, Real, Pass, Shape>, Shape>(
              "loss_strided_kernel", arguments, blocks, memory, context, strided);
        } else if constexpr (kWalk == Walk::panels) {
          const PanelArguments<kOperands, kOwn> panels(arguments, memory, division, kCount, find);
          return launch_kernel<
              Pass, loss_panels_kernel<Loss, Real, Pass, kCount, Shape, decltype(walk_)::kSecond>,
              Shape>("loss_panels_kernel", arguments, blocks, memory, context, panels);
        } else {
          const LineArguments<kOperands, kOwn> lines(arguments, memory, division, find);
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
