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

// Blocks that a launch without anything ahead of it has at most: those that wait for nothing more
// than a look at the incoming gradient end at once.
[[maybe_unused]] constexpr int64_t kMostCheckBlocks = 132 * 8;
[[maybe_unused]] constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

// Whether the launch ahead counts the rows: the walk begins early, and awaits the count.
bool is_counted(const RowMemory& memory) { return memory.count; }

template <int warps, int vectors, bool kGradient, bool kWhole, RowMode kMode>
Status launch_team(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  const TeamShape& shape = policy.slots;
  const int64_t shared = policy.warps * shape.slots * (int64_t{shape.slot_bytes} + 8);
  return launch_staying(
      "team_kernel", team_kernel<Stored, warps, vectors, kGradient, kWhole, kMode>,
      {32 * policy.warps, shared, 0, context.device.multiprocessors, is_counted(memory)},
      divide_up(arguments.rows(), policy.warps / warps), context, arguments, memory, shape,
      ModeOf<kMode>::scale_of(arguments));
}

template <bool kGradient, bool kWhole, RowMode kMode, size_t... k>
Status choose_team(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context, std::index_sequence<k...>) {
  Status status = Status::failure(StatusCode::failed, "no kernel for rows of this length");
  (void)((policy.team == static_cast<int>(k) &&
          (status = launch_team<kTeams[k].warps, kTeams[k].vectors, kGradient, kWhole, kMode>(
               arguments, policy, memory, context),
           true)) ||
         ...);
  return status;
}

template <int threads, int count, bool kGradient, RowMode kMode>
Status launch_registers(const RowArguments& arguments, const RowMemory& memory,
                        const LaunchContext& context) {
  constexpr int kBlock = threads < kLeastBlock ? kLeastBlock : threads;
  const int64_t blocks = divide_up(arguments.rows(), kBlock / threads);
  const int64_t most =
      arguments.guess == Guess::check ? kMostCheckBlocks * 1024 / kBlock : kMostBlocks;
  return launch_blocks("registers_kernel",
                       registers_kernel<Stored, threads, count, kGradient, kMode>,
                       least(blocks, most), kBlock, 0, is_counted(memory), context, arguments,
                       memory, ModeOf<kMode>::scale_of(arguments));
}

template <bool kGradient, RowMode kMode, size_t... k>
Status choose_registers(const RowArguments& arguments, const RowPolicy& policy,
                        const RowMemory& memory, const LaunchContext& context,
                        std::index_sequence<k...>) {
  Status status = Status::failure(StatusCode::failed, "no kernel for rows of this length");
  (void)((kRegisters[k].threads == policy.threads && kRegisters[k].vectors == policy.vectors &&
          (status =
               launch_registers<kRegisters[k].threads, kRegisters[k].vectors, kGradient, kMode>(
                   arguments, memory, context),
           true)) ||
         ...);
  return status;
}

template <bool kGradient, RowMode kMode, int vectors>
Status launch_ring(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  const RingShape& shape = policy.ring;
  const int64_t messages = int64_t{shape.warps} * policy.cluster * sizeof(Message) + 8;
  const int64_t shared =
      shape.warps * shape.slots * (int64_t{shape.slot_bytes} + 8) + kRoundsOf<kGradient> * messages;
  return launch_staying("ring_kernel", ring_kernel<Stored, kGradient, kMode, vectors>,
                        {32 * shape.warps, shared, policy.cluster, 0, is_counted(memory)},
                        arguments.rows(), context, arguments, memory, shape,
                        ModeOf<kMode>::scale_of(arguments));
}

template <bool kGradient, RowMode kMode, size_t... k>
Status choose_ring(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context, std::index_sequence<k...>) {
  Status status = Status::failure(StatusCode::failed, "no kernel for rows of this length");
  const auto launch = [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    if constexpr (is_ring(kMode, kGradient, kVectors))
      if (policy.ring.vectors == kVectors)
        status = launch_ring<kGradient, kMode, kVectors>(arguments, policy, memory, context);
  };
  (launch(std::integral_constant<int, kRingVectors[k]>()), ...);
  return status;
}

template <RowMode kMode>
Status launch_columns(const RowArguments& arguments, const RowPolicy& policy,
                      const RowMemory& memory, const LaunchContext& context) {
  const ColumnShape& shape = policy.columns;
  constexpr int kLinesPitch = pitch_of_lines(kMostColumns, sizeof(Stored));
  const bool is_usual = shape.threads == kMostColumns && shape.columns == kMostColumns;
  const auto kernel = !is_usual                     ? columns_kernel<Stored, kMode, 0>
                      : shape.pitch == kMostColumns ? columns_kernel<Stored, kMode, kMostColumns>
                                                    : columns_kernel<Stored, kMode, kLinesPitch>;
  const int64_t blocks = divide_up(arguments.rows(), shape.columns);
  const int64_t most = arguments.guess == Guess::check ? kMostCheckBlocks : kMostBlocks;
  return launch_blocks("columns_kernel", kernel, least(blocks, most), shape.threads,
                       shape.bytes(arguments.length, sizeof(Stored)), is_counted(memory), context,
                       arguments, memory, shape, ModeOf<kMode>::scale_of(arguments));
}

// By a walk of cross entropy.
template <bool kGradient, RowMode kMode>
Status launch_once(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  if (policy.access == RowAccess::teams) {
    const std::make_index_sequence<sizeof kTeams / sizeof *kTeams> teams;
    // In the other modes a kernel of its own for whole vectors would not be worth its compiling.
    if constexpr (kMode == RowMode::plain)
      if (policy.whole)
        return choose_team<kGradient, true, kMode>(arguments, policy, memory, context, teams);
    return choose_team<kGradient, false, kMode>(arguments, policy, memory, context, teams);
  }
  if (policy.access == RowAccess::registers)
    return choose_registers<kGradient, kMode>(
        arguments, policy, memory, context,
        std::make_index_sequence<sizeof kRegisters / sizeof *kRegisters>());
  return choose_ring<kGradient, kMode>(
      arguments, policy, memory, context,
      std::make_index_sequence<sizeof kRingVectors / sizeof *kRingVectors>());
}

template <bool kGradient>
Status launch_own(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                  const LaunchContext& context) {
  if (policy.access == RowAccess::columns)
    return policy.mode == RowMode::capped
               ? launch_columns<RowMode::capped>(arguments, policy, memory, context)
               : launch_columns<RowMode::smoothed>(arguments, policy, memory, context);
  if (policy.mode == RowMode::capped)
    return launch_once<kGradient, RowMode::capped>(arguments, policy, memory, context);
  return policy.mode == RowMode::plain
             ? launch_once<kGradient, RowMode::plain>(arguments, policy, memory, context)
             : launch_once<kGradient, RowMode::smoothed>(arguments, policy, memory, context);
}

template <template <typename> class Formula, int kGradients>
Status launch_slots(const RowArguments& arguments, const SlotShape& shape, const RowMemory& memory,
                    const LaunchContext& context) {
  const int64_t shared = kSlotWarps * shape.slots * (int64_t{Loss::rows} * shape.slot_bytes + 8) +
                         2 * kToldBytes * int64_t{kSlotWarps} * shape.cluster;
  const int64_t most =
      shape.cluster > 1 ? 0 : int64_t{context.device.multiprocessors} * kSlotBlocks;
  return launch_staying("slots_kernel", slots_kernel<Formula, Stored, kGradients>,
                        {kSlotWarps * 32, shared, shape.cluster, most, is_counted(memory)},
                        divide_up(arguments.rows(), kSlotWarps / shape.team), context, arguments,
                        memory, shape);
}

// As many gradients as may be wanted.
template <template <typename> class Formula, bool kGradient>
Status launch_slots_for(const RowArguments& arguments, const SlotShape& shape,
                        const RowMemory& memory, const LaunchContext& context) {
  if constexpr (!kGradient) return launch_slots<Formula, 0>(arguments, shape, memory, context);
  if constexpr (kGradient && Loss::rows > 1)
    if (arguments.gradients[1] || (Loss::rows > 2 && arguments.gradients[2]))
      return launch_slots<Formula, Loss::rows>(arguments, shape, memory, context);
  if constexpr (kGradient) return launch_slots<Formula, 1>(arguments, shape, memory, context);
}

template <template <typename> class Formula, int threads, bool kGradient>
Status launch_general(const RowArguments& arguments, const GeneralPolicy& policy,
                      const RowMemory& memory, const LaunchContext& context) {
  constexpr int kBlock = block_threads(threads), kRows = threads <= 32 ? kBlock / threads : 1;
  return launch_staying("general_kernel", general_kernel<Formula, Stored, threads, kGradient>,
                        {kBlock, int64_t{policy.resident} * Loss::rows * kPackBytes * kBlock,
                         policy.cluster > 1 ? policy.cluster : 0, 0, is_counted(memory)},
                        divide_up(arguments.rows(), kRows), context, arguments, memory,
                        policy.resident);
}

// By a walk of all losses.
template <template <typename> class Formula, bool kGradient>
Status launch_shared(const RowArguments& arguments, const RowPolicy& policy,
                     const RowMemory& memory, const LaunchContext& context) {
  if constexpr (has_slots<Formula<Real>, Stored>())
    if (policy.access == RowAccess::slots)
      return launch_slots_for<Formula, kGradient>(arguments, policy.parts, memory, context);
  const GeneralPolicy& general = policy.general;
  if (general.threads == kColumnTeam)
    return launch_general<Formula, kColumnTeam, kGradient>(arguments, general, memory, context);
  if (general.threads == 32)
    return launch_general<Formula, 32, kGradient>(arguments, general, memory, context);
  if (general.threads == kSmallBlock)
    return launch_general<Formula, kSmallBlock, kGradient>(arguments, general, memory, context);
  return launch_general<Formula, kLargeBlock, kGradient>(arguments, general, memory, context);
}

template <template <typename> class Formula, bool kGradient>
Status launch_walk(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  if constexpr (has_own_walks<Formula<Real>, Stored>())
    if (policy.access != RowAccess::general && policy.access != RowAccess::slots)
      return launch_own<kGradient>(arguments, policy, memory, context);
  return launch_shared<Formula, kGradient>(arguments, policy, memory, context);
}

template <template <typename> class Formula>
Status launch_rows(const RowArguments& arguments, RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  using Loss = Formula<Real>;
  if constexpr (Loss::has_usual)
    if (Loss::is_usual(arguments.parameters))
      return launch_rows<Loss::template Usual>(arguments, policy, memory, context);
  const bool gradient = arguments.wants_gradient();
  const bool again = (gradient && Loss::reads) || Loss::later_sums > 0;
  policy = choose<Loss, Stored>(arguments, again, context.device);
  return gradient ? launch_walk<Formula, true>(arguments, policy, memory, context)
                  : launch_walk<Formula, false>(arguments, policy, memory, context);
}

// The blocks of the kernels that sum over rows.
int64_t total_blocks(const RowArguments& arguments) {
  const int64_t blocks = least(divide_up(arguments.rows(), kTotalRows), kMostTotals);
  return blocks > 0 ? blocks : 1;
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
  auto* const totals = static_cast<Totals*>(context.workspace);
  auto* const numbers = reinterpret_cast<double*>(totals + 1);
  RowMemory memory;
  memory.arrived = &slot->arrived[0];
  memory.claimed = reinterpret_cast<int*>(&slot->arrived[1]);
  memory.count = counts_before ? numbers : nullptr;
  memory.losses = sums ? numbers + 1 : nullptr;
  Status status;
  if (context.clear_slot) status = clear(slot, kSlotBytes, context);
  if (status.ok() && counts_before)
    status = launch_blocks("prepare_kernel", prepare_kernel<Own, Stored>, total_blocks(arguments),
                           kTotalThreads, 0, false, context, arguments, memory, totals);
  const bool any = arguments.rows() > 0 && (arguments.length > 0 || !Loss::is_cross_entropy);
  RowPolicy policy;
  if (status.ok() && any) status = launch_rows<Own>(arguments, policy, memory, context);
  if (!status.ok()) return status;
  if (sums)
    return launch_blocks("finish_kernel", finish_kernel<Own, Stored>, total_blocks(arguments),
                         kTotalThreads, 0, any, context, arguments, memory, totals,
                         counts && !counts_before);
  return policy.access == RowAccess::ring ? clear(memory.claimed, sizeof(int), context) : status;
}

}  // namespace

const LaunchRows LOSSCLI_JOIN(rows_, LOSSCLI_DTYPE) = launch_all;

}  // namespace losscli::cuda
