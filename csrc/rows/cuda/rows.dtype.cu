// The kernels for rows of one dtype. Compiled once for each floating dtype, with
// -DLOSSCLI_DTYPE=float32 and so on.
#include <utility>

#include "core/cuda/launch.h"
#include "core/operand.h"
#include "core/runtime.h"
#include "rows/cuda/any_kernel.cuh"
#include "rows/cuda/instance.h"
#include "rows/cuda/registers_kernel.cuh"
#include "rows/cuda/ring_kernel.cuh"
#include "rows/cuda/team_kernel.cuh"
#include "rows/cuda/totals.cuh"
#include "rows/cuda/walks/columns.cuh"

#define LOSSCLI_JOIN_(a, b) a##b
#define LOSSCLI_JOIN(a, b) LOSSCLI_JOIN_(a, b)

namespace losscli::cuda {
namespace {

using Stored = StoredAs<DType::LOSSCLI_DTYPE>::Type;
using Real = RealOf<Stored>;

// Blocks that a launch without anything ahead of it has at most: those that wait for nothing more
// than a look at the incoming gradient end at once.
constexpr int64_t kMostCheckBlocks = 132 * 8;
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

bool may_be_done(const RowArguments& arguments) { return arguments.guess == Guess::check; }

// Above what a launch has of itself.
template <typename Kernel>
Status allow_shared(Kernel kernel, int bytes, const char* name) {
  return status_of(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   name);
}

template <int warps, int vectors, bool kGradient, bool kWhole, RowMode kMode>
Status launch_team(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  const TeamShape& shape = policy.slots;
  const int shared_bytes = policy.warps * shape.slots * (shape.slot_bytes + 8);
  const auto kernel = team_kernel<Stored, warps, vectors, kGradient, kWhole, kMode>;
  const Status status = allow_shared(kernel, shared_bytes, "the shared memory of team_kernel");
  if (!status.ok()) return status;
  const int64_t blocks =
      least(divide_up(arguments.rows(), policy.warps / warps), context.device.multiprocessors);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(32 * policy.warps));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(context.stream);
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments, memory, shape,
                                          ModeOf<kMode>::scale_of(arguments)),
                       "team_kernel", config.gridDim, 32 * policy.warps);
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
  const int64_t most = may_be_done(arguments) ? kMostCheckBlocks * 1024 / kBlock : kMostBlocks;
  return launch("registers_kernel", registers_kernel<Stored, threads, count, kGradient, kMode>,
                dim3(static_cast<unsigned>(least(blocks, most))), kBlock, false, context.stream,
                arguments, memory, ModeOf<kMode>::scale_of(arguments));
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

template <bool kGradient, RowMode kMode>
Status launch_ring(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  const RingShape& shape = policy.ring;
  const int shared_bytes =
      shape.warps * shape.slots * (shape.slot_bytes + 8) +
      kRoundsOf<kGradient> * (shape.warps * policy.cluster * static_cast<int>(sizeof(Message)) + 8);
  const auto kernel = ring_kernel<Stored, kGradient, kMode, kSlotVectors>;
  Status status = allow_shared(kernel, shared_bytes, "the shared memory of ring_kernel");
  if (!status.ok()) return status;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(policy.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(static_cast<unsigned>(32 * shape.warps));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(context.stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  config.gridDim = dim3(static_cast<unsigned>(policy.cluster));
  int clusters = 0;
  status = status_of(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config),
                     "the occupancy of ring_kernel");
  if (!status.ok()) return status;
  if (clusters == 0) return Status::failure(StatusCode::failed, "no cluster of ring_kernel fits");
  const int64_t grid = least(clusters, arguments.rows()) * policy.cluster;
  config.gridDim = dim3(static_cast<unsigned>(grid));
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments, memory, shape,
                                          ModeOf<kMode>::scale_of(arguments)),
                       "ring_kernel", config.gridDim, 32 * shape.warps);
}

template <RowMode kMode>
Status launch_columns(const RowArguments& arguments, const RowPolicy& policy,
                      const RowMemory& memory, const LaunchContext& context) {
  const ColumnShape& shape = policy.columns;
  const int shared_bytes = shape.bytes(arguments.length, sizeof(Stored));
  const auto kernel = columns_kernel<Stored, kMode>;
  const Status status = allow_shared(kernel, shared_bytes, "the shared memory of columns_kernel");
  if (!status.ok()) return status;
  const int64_t blocks = divide_up(arguments.rows(), shape.columns);
  const int64_t most = may_be_done(arguments) ? kMostCheckBlocks : kMostBlocks;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(least(blocks, most)));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(context.stream);
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments, memory, shape,
                                          ModeOf<kMode>::scale_of(arguments)),
                       "columns_kernel", config.gridDim, shape.threads);
}

template <typename Wide, int columns>
Status launch_any(const RowArguments& arguments, const RowMemory& memory,
                  const LaunchContext& context) {
  const int64_t blocks = divide_up(arguments.rows(), columns);
  const int64_t most = may_be_done(arguments) ? kMostCheckBlocks : kMostBlocks;
  return launch("any_kernel", any_kernel<Stored, Wide, columns>,
                dim3(static_cast<unsigned>(least(blocks, most))), kAnyThreads, false,
                context.stream, arguments, memory);
}

// Many rows a block, where neighbours in memory are of several rows, or rows are short.
bool takes_columns(const RowArguments& arguments) {
  const RowStrides& strides = arguments.strides[0];
  const int64_t next = arguments.inner > 1 ? strides.inner : strides.outer;
  return arguments.length <= kAnyThreads / 2 || next < strides.element;
}

template <typename Wide>
Status choose_any(const RowArguments& arguments, const RowMemory& memory,
                  const LaunchContext& context) {
  return takes_columns(arguments) ? launch_any<Wide, 32>(arguments, memory, context)
                                  : launch_any<Wide, 1>(arguments, memory, context);
}

// By a kernel that reads a row once.
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
  return launch_ring<kGradient, kMode>(arguments, policy, memory, context);
}

template <bool kGradient>
Status launch_rows(const RowArguments& arguments, const RowPolicy& policy, const RowMemory& memory,
                   const LaunchContext& context) {
  if constexpr (sizeof(Real) == 4) {
    if (policy.access == RowAccess::columns)
      return policy.mode == RowMode::capped
                 ? launch_columns<RowMode::capped>(arguments, policy, memory, context)
                 : launch_columns<RowMode::smoothed>(arguments, policy, memory, context);
    if (policy.access != RowAccess::any) {
      if (policy.mode == RowMode::capped)
        return launch_once<kGradient, RowMode::capped>(arguments, policy, memory, context);
      return policy.mode == RowMode::plain
                 ? launch_once<kGradient, RowMode::plain>(arguments, policy, memory, context)
                 : launch_once<kGradient, RowMode::smoothed>(arguments, policy, memory, context);
    }
  }
  // A float's rounding of a bent logit shows in its exponential.
  if constexpr (sizeof(Stored) == 4)
    if (arguments.parameters[kSoftcap] != 0) return choose_any<double>(arguments, memory, context);
  return choose_any<Real>(arguments, memory, context);
}

// The grid of the kernels that sum over rows.
dim3 total_grid(const RowArguments& arguments) {
  const int64_t blocks = least(divide_up(arguments.rows(), kTotalRows), kMostTotals);
  return dim3(static_cast<unsigned>(blocks > 0 ? blocks : 1));
}

Status clear(void* memory, size_t bytes, const LaunchContext& context) {
  return status_of(cudaMemsetAsync(memory, 0, bytes, static_cast<cudaStream_t>(context.stream)),
                   "clearing the slot of rows");
}

Status launch_all(const RowArguments& arguments, const RowPolicy& policy,
                  const LaunchContext& context) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  const bool divides =
      arguments.gradients[0] && arguments.reduction == RowReduction::mean && !arguments.operands[1];
  auto* const slot = static_cast<Slot*>(context.slot);
  auto* const totals = static_cast<Totals*>(context.workspace);
  auto* const numbers = reinterpret_cast<double*>(totals + 1);
  RowMemory memory;
  memory.arrived = &slot->arrived[0];
  memory.claimed = reinterpret_cast<int*>(&slot->arrived[1]);
  memory.count = divides ? numbers : nullptr;
  memory.losses = sums ? numbers + 1 : nullptr;
  Status status;
  if (context.clear_slot) status = clear(slot, kSlotBytes, context);
  if (status.ok() && divides)
    status = launch("prepare_kernel", prepare_kernel<Stored>, total_grid(arguments), kTotalThreads,
                    false, context.stream, arguments, memory, totals);
  if (status.ok() && arguments.rows() > 0 && arguments.length > 0)
    status = arguments.gradients[0] ? launch_rows<true>(arguments, policy, memory, context)
                                    : launch_rows<false>(arguments, policy, memory, context);
  if (!status.ok()) return status;
  if (sums)
    return launch("finish_kernel", finish_kernel<Stored, Real>, total_grid(arguments),
                  kTotalThreads, false, context.stream, arguments, memory, totals);
  return policy.access == RowAccess::ring ? clear(memory.claimed, sizeof(int), context) : status;
}

size_t workspace_of(const RowArguments& arguments) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  return sizeof(Totals) + sizeof(double) * (1 + (sums ? static_cast<size_t>(arguments.rows()) : 0));
}

}  // namespace

const RowInstance LOSSCLI_JOIN(rows_, LOSSCLI_DTYPE){workspace_of, launch_all};

}  // namespace losscli::cuda
