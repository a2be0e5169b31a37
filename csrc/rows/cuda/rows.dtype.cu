// The kernels of one loss for rows of one dtype. Compiled for each loss, once for each floating
// dtype, with -DLOSSCLI_DTYPE=float32 and so on.
#include LOSSCLI_LOSS_HEADER

#include <utility>

#include "core/runtime.h"
#include "rows/cuda/choice.cuh"
#include "rows/cuda/totals.cuh"
#include "rows/cuda/walks/columns.cuh"
#include "rows/cuda/walks/general.cuh"
#include "rows/cuda/walks/groups.cuh"
#include "rows/cuda/walks/registers.cuh"
#include "rows/cuda/walks/ring.cuh"
#include "rows/cuda/walks/slots.cuh"
#include "rows/cuda/walks/team.cuh"

#define LOSSCLI_JOIN_(a, b) a##b
#define LOSSCLI_JOIN(a, b) LOSSCLI_JOIN_(a, b)

namespace losscli::cuda {
namespace {

using Stored = StoredAs<DType::LOSSCLI_DTYPE>::Type;
using Real = RealOf<Stored>;

template <typename Number>
using Own = LOSSCLI_LOSS<Number>;
using Loss = Own<Real>;

// Blocks at most of a launch that checks: those that wait for nothing more than a look at the
// upstream gradient end at once.
constexpr int64_t kMostCheckBlocks = 132 * 8;

// One call, and the walk that was chosen for it.
struct Call {
  const RowArguments& arguments;
  RowMemory memory;
  const LaunchContext& context;
  RowPolicy policy = {};

  // Whether the walk begins early: it awaits the launch ahead before it reads, or its count.
  bool is_early() const {
    const bool waits = arguments.guess == Guess::check || !Loss::reads;
    return memory.count || (waits && arguments.grad_output);
  }
  // Whether launches before and after the walk would cost more than its rows.
  bool is_few() const { return arguments.rows() <= kMostCounted; }
  // The walk sums up so many rows at a time. A block of them puts the sum where it goes.
  void sum_up(int64_t rows, bool block = true) {
    memory.terms = divide_up(arguments.rows(), rows);
    memory.is_one = block && memory.terms == 1;
  }
};

// The blocks at most, of those that are needed, of a walk whose blocks end.
[[maybe_unused]] int64_t most_of(const Call& call, int64_t needed,
                                 int64_t checks = kMostCheckBlocks) {
  return call.arguments.guess == Guess::check ? checks : needed;
}

// Launches the kernel for one entry of a table, whose place `launch` takes as a constant.
template <size_t... k, typename Launch>
Status launch_entry(int entry, std::index_sequence<k...>, const Launch& launch) {
  Status status = Status::failure(StatusCode::failed, "no kernel for rows of this length");
  (void)((entry == static_cast<int>(k) &&
          (status = launch(std::integral_constant<size_t, k>()), true)) ||
         ...);
  return status;
}
template <typename Entry, size_t count>
constexpr std::make_index_sequence<count> places_of(const Entry (&)[count]) {
  return {};
}

template <bool kGradient, bool kWhole, RowMode kMode>
Status launch_team(const Call& call) {
  const TeamShape& shape = call.policy.slots;
  return launch_entry(call.policy.entry, places_of(kTeams), [&](auto k) {
    constexpr RowGroup kTeam = kTeams[decltype(k)::value];
    constexpr int kWarps = kTeam.threads / 32, kBlock = 32 * team_warps(kTeam.vectors);
    const int64_t shared = kBlock / 32 * shape.slots * (int64_t{shape.slot_bytes} + 8);
    return launch_grid(
        "team_kernel", team_kernel<Stored, kWarps, kTeam.vectors, kGradient, kWhole, kMode>,
        {kBlock, shared, 0, call.context.device.multiprocessors, call.is_early()},
        divide_up(call.arguments.rows(), kBlock / kTeam.threads), call.context, call.arguments,
        call.memory, shape, typename ModeOf<kMode>::Scale(call.arguments));
  });
}

template <bool kGradient, RowMode kMode>
Status launch_registers(const Call& call) {
  return launch_entry(call.policy.entry, places_of(kRegisters), [&](auto k) {
    constexpr RowGroup kGroup = kRegisters[decltype(k)::value];
    constexpr int kBlock = kGroup.threads < kLeastBlock ? kLeastBlock : kGroup.threads;
    const int64_t blocks = divide_up(call.arguments.rows(), kBlock / kGroup.threads);
    return launch_grid(
        "registers_kernel",
        registers_kernel<Stored, kGroup.threads, kGroup.vectors, kGradient, kMode>,
        {kBlock, 0, 0, most_of(call, blocks, kMostCheckBlocks * 1024 / kBlock), call.is_early()},
        blocks, call.context, call.arguments, call.memory,
        typename ModeOf<kMode>::Scale(call.arguments));
  });
}

template <bool kGradient, RowMode kMode>
Status launch_ring(const Call& call) {
  const RingShape& shape = call.policy.ring;
  const int cluster = call.policy.cluster;
  const int64_t messages = int64_t{shape.warps} * cluster * sizeof(Message) + 8;
  const int64_t shared =
      shape.warps * shape.slots * (int64_t{shape.slot_bytes} + 8) + kRoundsOf<kGradient> * messages;
  return launch_entry(call.policy.entry, places_of(kRingVectors), [&](auto k) {
    // No other is chosen.
    constexpr int kAsked = kRingVectors[decltype(k)::value];
    constexpr int kVectors = is_ring(kMode, kGradient, kAsked) ? kAsked : kMostRingVectors;
    return launch_grid("ring_kernel", ring_kernel<Stored, kGradient, kMode, kVectors>,
                       {32 * shape.warps, shared, cluster, 0, call.is_early()},
                       call.arguments.rows(), call.context, call.arguments, call.memory, shape,
                       typename ModeOf<kMode>::Scale(call.arguments));
  });
}

template <RowMode kMode>
Status launch_columns(const Call& call) {
  const ColumnShape& shape = call.policy.columns;
  constexpr int kItem = sizeof(Stored);
  const bool is_usual = shape.threads == kMostColumns && shape.columns == kMostColumns;
  const auto kernel = !is_usual                     ? columns_kernel<Stored, kMode, 0, 1>
                      : shape.pitch == kMostColumns ? columns_kernel<Stored, kMode, kMostColumns, 1>
                      : shape.unit == 1             ? columns_kernel<Stored, kMode, 1, 1>
                      : shape.unit == 8 / kItem     ? columns_kernel<Stored, kMode, 1, 8 / kItem>
                                                    : columns_kernel<Stored, kMode, 1, 16 / kItem>;
  const int64_t blocks = divide_up(call.arguments.rows(), shape.columns);
  return launch_grid("columns_kernel", kernel,
                     {shape.threads, shape.bytes(call.arguments.length, sizeof(Stored)), 0,
                      most_of(call, blocks), call.is_early()},
                     blocks, call.context, call.arguments, call.memory, shape,
                     typename ModeOf<kMode>::Scale(call.arguments));
}

// By a walk of cross entropy.
template <bool kGradient, RowMode kMode>
Status launch_own(const Call& call) {
  constexpr bool kPlain = kMode == RowMode::plain;
  switch (call.policy.access) {
    case RowAccess::columns:
      return launch_columns<kPlain ? RowMode::smoothed : kMode>(call);
    case RowAccess::teams:
      // In the other modes a kernel of its own for whole vectors would not be worth its compiling.
      return kPlain && call.policy.whole ? launch_team<kGradient, kPlain, kMode>(call)
                                         : launch_team<kGradient, false, kMode>(call);
    case RowAccess::registers:
      return launch_registers<kGradient, kMode>(call);
    default:
      return launch_ring<kGradient, kMode>(call);
  }
}

template <template <typename> class Formula, int kLanes, int kGradients>
Status launch_groups_of(Call& call) {
  using Block = GroupBlock<Formula<Real>, kLanes, kGradients>;
  const int64_t blocks = divide_up(call.arguments.rows(), Block::kRows);
  call.sum_up(Block::kRows);
  const int64_t shared = int64_t{Block::kWarps} * call.policy.parts.slots * Block::kSlotBytes;
  return launch_grid("groups_kernel", groups_kernel<Formula, Stored, kLanes, kGradients>,
                     {Block::kThreads, shared, 0, most_of(call, blocks), call.is_early()}, blocks,
                     call.context, call.arguments, call.memory,
                     RowFormula<Formula, Stored>(call.arguments), call.policy.parts);
}

template <template <typename> class Formula, int kGradients>
Status launch_groups(Call& call) {
  // Few rows have one kernel for any gradients.
  constexpr int kAll = kGradients > 0 ? Loss::rows : 0;
  if (call.policy.parts.lanes == kWideLanes)
    return launch_groups_of<Formula, kWideLanes, kAll>(call);
  if constexpr (kGradients > 0 || Loss::later_sums > 0)
    if (call.policy.parts.lanes == 32) return launch_groups_of<Formula, 32, kGradients>(call);
  return launch_groups_of<Formula, 8, kGradients>(call);
}

template <template <typename> class Formula, int kGradients>
Status launch_slots(const Call& call) {
  using Block = SlotBlock<Formula<Real>>;
  constexpr int kWarps = Block::kWarps;
  const SlotShape& shape = call.policy.parts;
  const int64_t shared = kWarps * shape.slots * (int64_t{Loss::rows} * shape.slot_bytes + 8) +
                         int64_t{Block::kTold} * shape.cluster;
  const int64_t most = shape.cluster > 1 ? 0 : call.context.device.multiprocessors;
  return launch_grid("slots_kernel", slots_kernel<Formula, Stored, kGradients>,
                     {kWarps * 32, shared, shape.cluster, most, call.is_early()},
                     divide_up(call.arguments.rows(), kWarps / shape.team), call.context,
                     call.arguments, call.memory, shape);
}

template <template <typename> class Formula, int threads, bool kGradient>
Status launch_general(Call& call) {
  if (threads == kOneThread) call.sum_up(block_threads(threads));
  const GeneralPolicy& policy = call.policy.general;
  constexpr int kBlock = block_threads(threads), kRows = threads <= 32 ? kBlock / threads : 1;
  const int64_t needed = divide_up(call.arguments.rows(), kRows);
  // Zeros are written faster by blocks that end: 128 MiB in 32 us, by those that stay in 37.
  return launch_grid(
      "general_kernel", general_kernel<Formula, Stored, threads, kGradient>,
      {kBlock, int64_t{policy.resident} * Loss::rows * kPackBytes * kBlock,
       policy.cluster > 1 ? policy.cluster : 0, Loss::reads ? 0 : needed, call.is_early()},
      needed, call.context, call.arguments, call.memory, policy.resident);
}

template <template <typename> class Formula, bool kGradient>
Status launch_walk(Call& call) {
  const RowAccess access = call.policy.access;
  if constexpr (has_own_walks<Formula<Real>, Stored>())
    if (access < RowAccess::groups) {
      if (call.policy.mode == RowMode::plain) return launch_own<kGradient, RowMode::plain>(call);
      if (call.policy.mode == RowMode::capped) return launch_own<kGradient, RowMode::capped>(call);
      return launch_own<kGradient, RowMode::smoothed>(call);
    }
  if constexpr (has_slots<Formula<Real>, Stored>())
    if (access == RowAccess::groups || access == RowAccess::slots) {
      // As many gradients as may be wanted.
      constexpr int kFirst = kGradient ? 1 : 0, kAll = kGradient ? Loss::rows : 0;
      const bool all = kGradient && (call.arguments.gradients[1] || call.arguments.gradients[2]);
      if (access == RowAccess::groups)
        return all ? launch_groups<Formula, kAll>(call) : launch_groups<Formula, kFirst>(call);
      return all ? launch_slots<Formula, kAll>(call) : launch_slots<Formula, kFirst>(call);
    }
  if constexpr (!kGradient && !Formula<Real>::reads)
    return launch_general<Formula, kOneThread, false>(call);
  switch (call.policy.general.threads) {
    case kColumnTeam:
      return launch_general<Formula, kColumnTeam, kGradient>(call);
    case 32:
      return launch_general<Formula, 32, kGradient>(call);
    case kSmallBlock:
      return launch_general<Formula, kSmallBlock, kGradient>(call);
    default:
      return launch_general<Formula, kLargeBlock, kGradient>(call);
  }
}

// The blocks of the kernels that sum over rows.
int64_t total_blocks(int64_t rows) {
  return rows <= kOneTotal ? 1 : least(divide_up(rows, kTotalThreads), kMostTotals);
}

// Counts what a mean divides by, unless the blocks of the walk do.
Status prepare(Call& call) {
  RowMemory& memory = call.memory;
  const RowAccess access = call.policy.access;
  auto* const totals = static_cast<RowSums*>(call.context.workspace);
  memory.counts = call.is_few() && access != RowAccess::teams && access != RowAccess::ring &&
                  access != RowAccess::slots;
  if (memory.counts) {
    memory.count = nullptr;
    return {};
  }
  const int64_t blocks = total_blocks(call.arguments.rows());
  return launch_grid("prepare_kernel", prepare_kernel<Own, Stored>,
                     {kTotalThreads, 0, 0, blocks, call.arguments.guess == Guess::check}, blocks,
                     call.context, call.arguments, memory, totals);
}

template <template <typename> class Formula>
Status launch_rows(Call& call) {
  using Loss = Formula<Real>;
  if constexpr (Loss::has_usual)
    if (Loss::is_usual(call.arguments.parameters)) return launch_rows<Loss::template Usual>(call);
  const bool gradient = call.arguments.wants_gradient();
  const bool again = (gradient && Loss::reads) || Loss::later_sums > 0;
  call.policy = choose<Loss, Stored>(call.arguments, again, call.context.device);
  if (call.policy.access == RowAccess::columns) call.sum_up(call.policy.columns.summed(), false);
  call.memory.finishes = call.is_few() && (call.policy.access == RowAccess::columns ||
                                           call.policy.access == RowAccess::registers);
  if (call.memory.count) {
    const Status status = prepare(call);
    if (!status.ok()) return status;
  }
  return gradient ? launch_walk<Formula, true>(call) : launch_walk<Formula, false>(call);
}

Status clear(void* memory, size_t bytes, const LaunchContext& context) {
  return status_of(cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(context.stream)),
                   "clearing the slot of rows");
}

Status launch_all(const RowArguments& arguments, const LaunchContext& context) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  const bool counts = arguments.reduction == RowReduction::mean && arguments.wants_gradient() &&
                      (Loss::labelled || arguments.mask);
  auto* const slot = static_cast<Slot*>(context.slot);
  auto* const totals = static_cast<RowSums*>(context.workspace);
  RowMemory memory;
  memory.arrived = &slot->arrived[0];
  memory.claimed = reinterpret_cast<int*>(&slot->arrived[1]);
  memory.count = counts ? &totals[kMostTotals].words[1] : nullptr;
  memory.sums = sums ? totals + kMostTotals + 1 : nullptr;
  memory.terms = arguments.rows();
  Status status;
  if (context.clear_slot) status = clear(slot, kSlotBytes, context);
  const bool any = arguments.rows() > 0 && (arguments.length > 0 || !Loss::is_cross_entropy);
  Call call{arguments, memory, context};
  if (status.ok() && any) status = launch_rows<Own>(call);
  if (!status.ok()) return status;
  const int64_t blocks = total_blocks(call.memory.terms);
  if (sums && !call.memory.is_one && !call.memory.finishes)
    return launch_grid("finish_kernel", finish_kernel<Stored>, {kTotalThreads, 0, 0, blocks, any},
                       blocks, context, arguments, call.memory, totals);
  return call.policy.access == RowAccess::ring ? clear(memory.claimed, sizeof(int), context)
                                               : status;
}

}  // namespace

const LaunchRows LOSSCLI_JOIN(rows_, LOSSCLI_DTYPE) = launch_all;

}  // namespace losscli::cuda
