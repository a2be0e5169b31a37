// The kernels of one loss for rows of one dtype. Compiled for each loss, once for each floating
// dtype, with -DLOSSCLI_DTYPE=float32 and so on.
#include LOSSCLI_LOSS_HEADER

#include <utility>

#include "core/runtime.h"
#include "rows/cuda/choice.cuh"
#include "rows/cuda/instance.h"
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
// incoming gradient end at once.
[[maybe_unused]] constexpr int64_t kMostCheckBlocks = 132 * 8;

// One call, and the walk that was chosen for it.
struct Call {
  const RowArguments& arguments;
  RowMemory memory;
  const LaunchContext& context;
  RowPolicy policy = {};

  // Whether the launch ahead counts the rows: the walk begins early, and awaits the count.
  bool is_counted() const { return memory.count; }
  // The walk sums up so many rows at a time.
  void sum_up(int64_t rows) { memory.terms = divide_up(arguments.rows(), rows); }
};

[[maybe_unused]] int64_t blocks_of(const Call& call, int64_t needed, int64_t checks) {
  return least(needed, call.arguments.guess == Guess::check ? checks : (int64_t{1} << 31) - 1);
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
    return launch_staying(
        "team_kernel", team_kernel<Stored, kWarps, kTeam.vectors, kGradient, kWhole, kMode>,
        {kBlock, shared, 0, call.context.device.multiprocessors, call.is_counted()},
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
    return launch_blocks("registers_kernel",
                         registers_kernel<Stored, kGroup.threads, kGroup.vectors, kGradient, kMode>,
                         blocks_of(call, blocks, kMostCheckBlocks * 1024 / kBlock), kBlock, 0,
                         call.is_counted(), call.context, call.arguments, call.memory,
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
    return launch_staying("ring_kernel", ring_kernel<Stored, kGradient, kMode, kVectors>,
                          {32 * shape.warps, shared, cluster, 0, call.is_counted()},
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
  return launch_blocks("columns_kernel", kernel, blocks_of(call, blocks, kMostCheckBlocks),
                       shape.threads, shape.bytes(call.arguments.length, sizeof(Stored)),
                       call.is_counted(), call.context, call.arguments, call.memory, shape,
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

template <template <typename> class Formula>
Status launch_groups(const Call& call) {
  using Block = GroupBlock<Formula<Real>>;
  return launch_blocks("groups_kernel", groups_kernel<Formula, Stored>,
                       divide_up(call.arguments.rows(), Block::kRows), Block::kWarps * 32,
                       Block::kWarps * kGroupSlots * Block::kSlotBytes, call.is_counted(),
                       call.context, call.arguments, call.memory,
                       RowFormula<Formula, Stored>(call.arguments), call.policy.parts.whole);
}

template <template <typename> class Formula, int kGradients, bool kAlone>
Status launch_slots_of(const Call& call) {
  using Block = SlotBlock<Formula<Real>, kAlone>;
  constexpr int kWarps = Block::kWarps;
  const SlotShape& shape = call.policy.parts;
  const int64_t shared = kWarps * shape.slots * (int64_t{Loss::rows} * shape.slot_bytes + 8) +
                         int64_t{Block::kTold} * shape.cluster;
  const int64_t most =
      shape.cluster > 1 ? 0 : int64_t{call.context.device.multiprocessors} * Block::kBlocks;
  return launch_staying("slots_kernel", slots_kernel<Formula, Stored, kGradients, kAlone>,
                        {kWarps * 32, shared, shape.cluster, most, call.is_counted()},
                        divide_up(call.arguments.rows(), kWarps / shape.team), call.context,
                        call.arguments, call.memory, shape);
}

template <template <typename> class Formula, int kGradients>
Status launch_slots(const Call& call) {
  if constexpr (!Loss::shares && (kGradients > 0 || Loss::later_sums > 0))
    if (call.policy.parts.alone) return launch_slots_of<Formula, kGradients, true>(call);
  return launch_slots_of<Formula, kGradients, false>(call);
}

template <template <typename> class Formula, int threads, bool kGradient>
Status launch_general(const Call& call) {
  const GeneralPolicy& policy = call.policy.general;
  constexpr int kBlock = block_threads(threads), kRows = threads <= 32 ? kBlock / threads : 1;
  const int64_t needed = divide_up(call.arguments.rows(), kRows);
  // Zeros are written faster by blocks that end: 128 MiB in 32 us, by those that stay in 37.
  return launch_staying(
      "general_kernel", general_kernel<Formula, Stored, threads, kGradient>,
      {kBlock, int64_t{policy.resident} * Loss::rows * kPackBytes * kBlock,
       policy.cluster > 1 ? policy.cluster : 0, Loss::reads ? 0 : needed, call.is_counted()},
      needed, call.context, call.arguments, call.memory, policy.resident);
}

template <template <typename> class Formula, bool kGradient>
Status launch_walk(const Call& call) {
  const RowAccess access = call.policy.access;
  if constexpr (has_own_walks<Formula<Real>, Stored>())
    if (access < RowAccess::groups) {
      if (call.policy.mode == RowMode::plain) return launch_own<kGradient, RowMode::plain>(call);
      if (call.policy.mode == RowMode::capped) return launch_own<kGradient, RowMode::capped>(call);
      return launch_own<kGradient, RowMode::smoothed>(call);
    }
  if constexpr (has_slots<Formula<Real>, Stored>() && !kGradient && Loss::later_sums == 0)
    if (access == RowAccess::groups) return launch_groups<Formula>(call);
  if constexpr (has_slots<Formula<Real>, Stored>())
    if (access == RowAccess::slots) {
      // As many gradients as may be wanted.
      if (kGradient && (call.arguments.gradients[1] || call.arguments.gradients[2]))
        return launch_slots<Formula, kGradient ? Loss::rows : 0>(call);
      return launch_slots<Formula, kGradient ? 1 : 0>(call);
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

template <template <typename> class Formula>
Status launch_rows(Call& call) {
  using Loss = Formula<Real>;
  if constexpr (Loss::has_usual)
    if (Loss::is_usual(call.arguments.parameters)) return launch_rows<Loss::template Usual>(call);
  const bool gradient = call.arguments.wants_gradient();
  const bool again = (gradient && Loss::reads) || Loss::later_sums > 0;
  call.policy = choose<Loss, Stored>(call.arguments, again, call.context.device);
  if (call.policy.access == RowAccess::groups) call.sum_up(GroupBlock<Loss>::kRows);
  if (call.policy.access == RowAccess::columns) call.sum_up(call.policy.columns.summed());
  return gradient ? launch_walk<Formula, true>(call) : launch_walk<Formula, false>(call);
}

// The blocks of the kernels that sum over rows.
int64_t total_blocks(int64_t rows) {
  return rows <= kOneTotal ? 1 : least(divide_up(rows, kTotalThreads), kMostTotals);
}

Status clear(void* memory, size_t bytes, const LaunchContext& context) {
  return status_of(cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(context.stream)),
                   "clearing the slot of rows");
}

Status launch_all(const RowArguments& arguments, const LaunchContext& context) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  const bool counts =
      arguments.reduction == RowReduction::mean && (Loss::labelled || arguments.mask);
  const bool counts_before = counts && arguments.wants_gradient();
  auto* const slot = static_cast<Slot*>(context.slot);
  auto* const totals = static_cast<RowSums*>(context.workspace);
  RowMemory memory;
  memory.arrived = &slot->arrived[0];
  memory.claimed = reinterpret_cast<int*>(&slot->arrived[1]);
  memory.count = counts_before ? &totals[kMostTotals].count : nullptr;
  memory.sums = sums ? totals + kMostTotals + 1 : nullptr;
  memory.terms = arguments.rows();
  Status status;
  if (context.clear_slot) status = clear(slot, kSlotBytes, context);
  if (status.ok() && counts_before)
    status =
        launch_blocks("prepare_kernel", prepare_kernel<Own, Stored>, total_blocks(memory.terms),
                      kTotalThreads, 0, false, context, arguments, memory, totals);
  const bool any = arguments.rows() > 0 && (arguments.length > 0 || !Loss::is_cross_entropy);
  Call call{arguments, memory, context};
  if (status.ok() && any) status = launch_rows<Own>(call);
  if (!status.ok()) return status;
  if (sums)
    return launch_blocks("finish_kernel", finish_kernel<Stored>, total_blocks(call.memory.terms),
                         kTotalThreads, 0, any, context, arguments, call.memory, totals,
                         counts && !counts_before);
  return call.policy.access == RowAccess::ring ? clear(memory.claimed, sizeof(int), context)
                                               : status;
}

}  // namespace

const LaunchRows LOSSCLI_JOIN(rows_, LOSSCLI_DTYPE) = launch_all;

}  // namespace losscli::cuda
