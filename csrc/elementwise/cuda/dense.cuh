// Operands of the result's dtype that are dense, or some of them rows that repeat: which kernel
// takes a call, and how it is launched.
#pragma once

#include "core/cuda/launch.h"
#include "elementwise/cuda/few_kernel.cuh"
#include "elementwise/cuda/flat_kernel.cuh"
#include "elementwise/cuda/instance.h"

namespace losscli::cuda {

// In `bytes` an element.
template <typename Pass>
constexpr Policies dense_policies(bool row, size_t bytes, int operands) {
  if (Pass::forward ? !Pass::sum : Pass::incoming_tensor) return kPlain;
  if (!Pass::sum) return kGradients;
  if (!Pass::writes) {
    if (bytes == 8) return row ? kReadRows64 : kReadFlat64;
    return !row ? kReadFlat : bytes == 2 ? kReadRows16 : kReadRows;
  }
  Policies policies = bytes == 2 ? row ? kWriteRows16 : kWriteFlat16
                      : row      ? kWriteRows
                                 : kWriteFlat;
  if (operands > 2) policies.large = row ? kWriteManyRows : kWriteMany;
  // Compensated sums take registers.
  if (bytes == 8 && policies.small.resident > 2) policies.small.resident = 2;
  return policies;
}

// The same for a loss that is costly.
template <typename Pass>
constexpr Policies costly_policies(bool row, size_t bytes, int operands) {
  Policies policies = dense_policies<Pass>(row, bytes, operands);
  if (!Pass::sum || (operands > 2 && (!Pass::writes || bytes < 8))) return policies;
  if (!Pass::writes) {
    policies.large = bytes == 8 ? kReadCostly64 : kReadCostly;
  } else {
    policies.large = bytes == 8 ? kWriteCostly64 : bytes == 2 ? kWriteCostly16 : kWriteCostly;
  }
  policies.large.row_ahead = row;
  return policies;
}

// Finds the policy of a call; hands its shape and the number of blocks that take tiles to `use`.
template <typename Loss, typename Stored, typename Pass, bool row, typename Use>
auto with_policy(const ElementwiseArguments& arguments, Use use) {
  constexpr int kOperands = Loss::signature.operands;
  constexpr Policies kPolicies = is_costly<Loss>
                                     ? costly_policies<Pass>(row, sizeof(Stored), kOperands)
                                     : dense_policies<Pass>(row, sizeof(Stored), kOperands);
  constexpr LaunchPolicy kSmall = kPolicies.small, kLarge = kPolicies.large;
  const auto with = [&](auto shape, const LaunchPolicy& policy) {
    using Shape = decltype(shape);
    constexpr int64_t kTile = int64_t{Shape::threads} * Shape::loads * Pack<Stored>::kCount;
    return use(shape, blocks_for(policy, divide_up(arguments.space.size, kTile)));
  };
  // Measured with two operands; more of them with fewer loads of each, for the registers.
  constexpr int kShare = kOperands <= 2 ? 1 : 2;
  if (arguments.space.size * static_cast<int64_t>(sizeof(Stored)) < kPolicies.large_bytes)
    return with(Shape<kSmall.threads, kSmall.loads / kShare, kSmall.resident,
                      kSmall.past_first_level, kSmall.row_ahead>(),
                kSmall);
  return with(Shape<kLarge.threads, kLarge.loads / kShare, kLarge.resident, kLarge.past_first_level,
                    kLarge.row_ahead>(),
              kLarge);
}

// By one block, whatever the pass is for larger sizes.
template <typename Loss, typename Stored, typename Pass>
Status launch_few(const Loss& loss, const ElementwiseArguments& arguments, void* stream) {
  constexpr int kPack = Pack<Stored>::kCount;
  using Arguments = FewArguments<Loss::signature.operands>;
  const int64_t size = arguments.space.size;
  const Rows rows = find_rows(arguments, Loss::signature.operands);
  bool packed =
      size % kPack == 0 && rows.length % kPack == 0 && (rows.length > kPack || rows.length == size);
  for (int n = 0; n < Loss::signature.operands; ++n)
    packed &= aligned(arguments.operands[n].data) && aligned(arguments.gradients[n]);
  return packed ? launch("loss_few_kernel", loss_few_kernel<Loss, Stored, Pass, kPack>, dim3(1),
                         kFewThreads<kPack>, false, stream, Arguments(arguments, rows, kPack), loss)
                : launch("loss_few_kernel", loss_few_kernel<Loss, Stored, Pass, 1>, dim3(1),
                         kFewThreads<1>, false, stream, Arguments(arguments, rows, 1), loss);
}

template <typename Loss, typename Stored, typename Pass, bool row>
Status launch_flat(const Loss& loss, const ElementwiseArguments& arguments, const GridSum& memory,
                   const LaunchContext& context) {
  constexpr int kOperands = Loss::signature.operands;
  return with_policy<Loss, Stored, Pass, row>(arguments, [&](auto shape, int64_t blocks) {
    using Shape = decltype(shape);
    constexpr auto kKernel = loss_flat_kernel<Loss, Stored, Pass, Shape, row>;
    if constexpr (!Pass::forward)
      blocks = backward_blocks<kKernel>(arguments, context.device, Shape::threads, blocks);
    RowSteps steps;
    if constexpr (row)
      steps = RowSteps(find_rows(arguments, kOperands), Pack<Stored>::kCount, Shape::threads,
                       blocks * Shape::threads * Shape::loads);
    const bool collects = Pass::sum && memory.combine == Combine::collector;
    const auto grid = static_cast<unsigned>(blocks + collects);
    return launch("loss_flat_kernel", kKernel, dim3(grid), Shape::threads,
                  Pass::sum && memory.combine == Combine::cluster, context.stream, loss,
                  FlatArguments<kOperands>(arguments, memory, steps, Pass::incoming_tensor));
  });
}

template <typename Loss, typename Stored>
struct Dense {
  // Finds the pass that a call asks for and hands it to `use`.
  template <typename Use>
  static auto with_pass(const ElementwiseArguments& arguments, Use use) {
    const Asked asked(arguments);
    if (asked.sum) return asked.gradient ? use(SumGradientPass()) : use(SumPass());
    if (asked.value) return asked.gradient ? use(ValueGradientPass()) : use(ValuePass());
    return asked.incoming_tensor ? use(IncomingTensorPass()) : use(GradientPass());
  }

  static int64_t blocks(const ElementwiseArguments& arguments, Access access) {
    if (access == Access::few) return 1;
    return with_pass(arguments, [&](auto pass) {
      const auto count = [](auto, int64_t blocks) { return blocks; };
      using Pass = decltype(pass);
      return access == Access::row ? with_policy<Loss, Stored, Pass, true>(arguments, count)
                                   : with_policy<Loss, Stored, Pass, false>(arguments, count);
    });
  }

  static Status launch(const ElementwiseArguments& arguments, Access access, const GridSum& memory,
                       const LaunchContext& context) {
    const Loss loss(arguments.parameters);
    return with_pass(arguments, [&](auto pass) {
      using Pass = decltype(pass);
      if constexpr (!Pass::value && !Pass::incoming_tensor) {
        if (access == Access::few)
          return launch_few<Loss, Stored, Pass>(loss, arguments, context.stream);
      }
      if constexpr (!Pass::incoming_tensor) {
        if (access == Access::row)
          return launch_flat<Loss, Stored, Pass, true>(loss, arguments, memory, context);
      }
      return launch_flat<Loss, Stored, Pass, false>(loss, arguments, memory, context);
    });
  }

  static constexpr Instance instance{blocks, launch};
};

}  // namespace losscli::cuda
