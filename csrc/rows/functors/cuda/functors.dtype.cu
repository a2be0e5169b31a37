// The kernels of one functor for rows of one dtype. Compiled for each loss, once for each floating
// dtype, with -DLOSSCLI_DTYPE=float32 and so on.
#include LOSSCLI_LOSS_HEADER

#include "core/cuda/launch.h"
#include "core/operand.h"
#include "core/runtime.h"
#include "rows/functors/cuda/instance.h"
#include "rows/functors/cuda/rows_kernel.cuh"
#include "rows/functors/cuda/slots_kernel.cuh"
#include "rows/functors/cuda/totals.cuh"

#define LOSSCLI_JOIN_(a, b) a##b
#define LOSSCLI_JOIN(a, b) LOSSCLI_JOIN_(a, b)

namespace losscli::cuda {
namespace {

using Stored = StoredAs<DType::LOSSCLI_DTYPE>::Type;

template <typename Real>
using Functor = LOSSCLI_LOSS<Real>;
using Loss = Functor<RealOf<Stored>>;

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// The fewest blocks whose shared memory holds a row; where rows are few, as many as read faster.
FunctorPolicy choose(const RowArguments& arguments, bool again, const DeviceFacts& device) {
  FunctorPolicy policy;
  constexpr int kCount = PackedRow<Stored>::kCount;
  const int64_t packs = divide_up(arguments.length, kCount);
  policy.threads = packs <= kWarpPacks ? 32 : packs <= kSmallBlockPacks ? kSmallBlock : kLargeBlock;
  const int64_t most =
      kHeldBytes / (int64_t{Loss::rows} * kPackBytes * block_threads(policy.threads));
  const auto held = [&] { return divide_up(packs, int64_t{policy.threads} * policy.cluster); };
  if (policy.threads == kLargeBlock && device.clusters) {
    while (policy.cluster < 8 && again && held() > most) policy.cluster *= 2;
    while (policy.cluster < 8 && held() >= 2 * packs_ahead(Loss::rows) &&
           arguments.rows() * policy.cluster * 2 <= device.multiprocessors)
      policy.cluster *= 2;
  }
  if (again) policy.resident = static_cast<int>(least(held(), most));
  return policy;
}

template <int threads, bool kGradient>
Status launch_rows(const RowArguments& arguments, const FunctorPolicy& policy,
                   const RowMemory& memory, const LaunchContext& context) {
  const auto kernel = functor_kernel<Functor, Stored, threads, kGradient>;
  constexpr int kBlock = block_threads(threads);
  const int shared = policy.resident * Loss::rows * kPackBytes * kBlock;
  Status status =
      status_of(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                "the shared memory of functor_kernel");
  if (!status.ok()) return status;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(policy.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(kBlock);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = static_cast<cudaStream_t>(context.stream);
  config.attrs = &attribute;
  config.numAttrs = policy.cluster > 1 ? 1 : 0;
  config.gridDim = dim3(static_cast<unsigned>(policy.cluster));
  // The blocks stay, and take one row after the other.
  int64_t teams = 0;
  if (policy.cluster > 1) {
    int clusters = 0;
    status = status_of(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config),
                       "the occupancy of functor_kernel");
    teams = clusters;
  } else {
    int blocks = 0;
    status = status_of(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kBlock,
                                                                     static_cast<size_t>(shared)),
                       "the occupancy of functor_kernel");
    teams = int64_t{blocks} * context.device.multiprocessors;
  }
  if (!status.ok()) return status;
  if (teams == 0) return Status::failure(StatusCode::failed, "no block of functor_kernel fits");
  const int64_t needed = divide_up(arguments.rows(), threads == 32 ? kBlock / 32 : 1);
  config.gridDim = dim3(static_cast<unsigned>(least(teams, needed) * policy.cluster));
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments, memory, policy.resident),
                       "functor_kernel", config.gridDim, kBlock);
}

template <bool kGradient>
Status launch_as(const RowArguments& arguments, const RowMemory& memory,
                 const LaunchContext& context) {
  const bool again = FunctorRows<Functor, Stored, 32, kGradient>::kAgain;
  const FunctorPolicy policy = choose(arguments, again, context.device);
  if (policy.threads == 32) return launch_rows<32, kGradient>(arguments, policy, memory, context);
  if (policy.threads == kSmallBlock)
    return launch_rows<kSmallBlock, kGradient>(arguments, policy, memory, context);
  return launch_rows<kLargeBlock, kGradient>(arguments, policy, memory, context);
}

// Whether the rows of all operands and gradients begin at the same place of 16 bytes, so that
// vectors of one are vectors of all.
bool lie_alike(const RowArguments& arguments) {
  const auto first = reinterpret_cast<uintptr_t>(arguments.operands[0]);
  const auto lies_so = [&](const void* data, const RowStrides& strides) {
    const int64_t steps = strides.outer - arguments.strides[0].outer;
    return (strides.element == 1 || arguments.length == 1) &&
           (reinterpret_cast<uintptr_t>(data) - first) % kPackBytes == 0 &&
           (arguments.rows() == 1 || steps * int64_t{sizeof(Stored)} % kPackBytes == 0);
  };
  for (int k = 0; k < Loss::rows; ++k) {
    if (!lies_so(arguments.operands[k], arguments.strides[k])) return false;
    if (arguments.gradients[k] && !lies_so(arguments.gradients[k], arguments.gradient_strides[k]))
      return false;
  }
  return true;
}

// The shape of the slots of so many warps for a row, if they hold what they must.
bool fits(const RowArguments& arguments, bool again, int team, int cluster, SlotShape& shape) {
  constexpr int64_t kMostSlotBytes = int64_t{slot_vectors(Loss::rows)} * 32 * kPackBytes;
  const int64_t bytes = arguments.length * int64_t{sizeof(Stored)};
  const int64_t warps = int64_t{team} * cluster;
  // Whole lines of memory where a warp has more than a few of them.
  const int64_t part = divide_up(bytes, warps), unit = part >= 1024 ? 128 : kPackBytes;
  const int64_t piece_slots = divide_up(part, kMostSlotBytes);
  const int64_t slot_bytes = divide_up(divide_up(part, piece_slots), unit) * unit;
  const int64_t slots =
      least(kSlotKernelBytes / kSlotWarps / (Loss::rows * slot_bytes + 8), kMostSlots);
  shape.team = team;
  shape.cluster = cluster;
  shape.slots = static_cast<int>(slots);
  shape.slot_bytes = static_cast<int>(slot_bytes);
  shape.piece_slots = static_cast<int>(piece_slots);
  // A row that is read again is held, and the next while it is; of whole blocks, a part of the
  // next.
  const int64_t held = team == kSlotWarps ? piece_slots + 1 : 2 * piece_slots;
  return slots >= (again ? held : 2);
}

// The fewest warps whose slots hold a row; more of them where rows are few. Where a row is not
// held, the fewest that end at about the same time.
bool choose_slots(const RowArguments& arguments, bool again, const DeviceFacts& device,
                  SlotShape& shape) {
  const int64_t bytes = arguments.length * int64_t{sizeof(Stored)}, rows = arguments.rows();
  if (!device.clusters || arguments.inner != 1 || rows >= int64_t{1} << 30 ||
      bytes < kLeastSlotRowBytes || bytes >= int64_t{1} << 30 || !lie_alike(arguments))
    return false;
  const int64_t most = int64_t{device.multiprocessors} * kSlotBlocks * kSlotWarps;
  const auto is_enough = [&](int64_t warps) {
    if (bytes < 2 * warps * kLeastSlotRowBytes) return true;
    const int64_t turns = divide_up(rows * warps, most);
    return again || warps >= kSlotWarps ? rows * warps * 2 > most
                                        : turns * most * 32 <= rows * warps * 33;
  };
  for (int warps = 1; warps <= kSlotWarps * kMostCluster; warps *= 2) {
    const int team = warps < kSlotWarps ? warps : kSlotWarps;
    if (!fits(arguments, again, team, warps / team, shape)) continue;
    if (is_enough(warps) || warps == kSlotWarps * kMostCluster) return true;
  }
  return false;
}

template <template <typename> class AnyFunctor, int kGradients>
Status launch_slots(const RowArguments& arguments, const SlotShape& shape, const RowMemory& memory,
                    const LaunchContext& context) {
  const auto kernel = slots_kernel<AnyFunctor, Stored, kGradients>;
  const int64_t shared = kSlotWarps * shape.slots * (int64_t{Loss::rows} * shape.slot_bytes + 8) +
                         2 * kToldBytes * int64_t{kSlotWarps} * shape.cluster;
  Status status =
      status_of(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared)),
                "the shared memory of slots_kernel");
  if (!status.ok()) return status;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(kSlotWarps * 32);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = static_cast<cudaStream_t>(context.stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  config.gridDim = dim3(static_cast<unsigned>(shape.cluster));
  int clusters = context.device.multiprocessors * kSlotBlocks;
  if (shape.cluster > 1) {
    status = status_of(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config),
                       "the occupancy of slots_kernel");
    if (!status.ok()) return status;
    if (clusters == 0)
      return Status::failure(StatusCode::failed, "no cluster of slots_kernel fits");
  }
  const int64_t needed = divide_up(arguments.rows(), kSlotWarps / shape.team);
  config.gridDim = dim3(static_cast<unsigned>(least(clusters, needed) * shape.cluster));
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments, memory, shape),
                       "slots_kernel", config.gridDim, kSlotWarps * 32);
}

// As many gradients as may be wanted.
template <template <typename> class AnyFunctor, bool kGradient>
Status launch_slots_for(const RowArguments& arguments, const SlotShape& shape,
                        const RowMemory& memory, const LaunchContext& context) {
  if constexpr (!kGradient) return launch_slots<AnyFunctor, 0>(arguments, shape, memory, context);
  if constexpr (kGradient && Loss::rows > 1)
    if (arguments.gradients[1] || (Loss::rows > 2 && arguments.gradients[2]))
      return launch_slots<AnyFunctor, Loss::rows>(arguments, shape, memory, context);
  if constexpr (kGradient) return launch_slots<AnyFunctor, 1>(arguments, shape, memory, context);
}

// The kernel that reads each row once, where rows are what it takes.
template <template <typename> class AnyFunctor, bool kGradient>
Status launch_best(const RowArguments& arguments, const RowMemory& memory,
                   const LaunchContext& context) {
  using AnyLoss = AnyFunctor<RealOf<Stored>>;
  if constexpr (sizeof(Stored) <= 4 && AnyLoss::reads) {
    SlotShape shape;
    const bool again = kGradient || AnyLoss::later_sums > 0;
    if (choose_slots(arguments, again, context.device, shape)) {
      if constexpr (AnyLoss::has_usual)
        if (AnyLoss::is_usual(arguments.parameters))
          return launch_slots_for<AnyLoss::template Usual, kGradient>(arguments, shape, memory,
                                                                      context);
      return launch_slots_for<AnyFunctor, kGradient>(arguments, shape, memory, context);
    }
  }
  return launch_as<kGradient>(arguments, memory, context);
}

// The grid of the kernels that sum over rows.
dim3 total_grid(const RowArguments& arguments) {
  const int64_t blocks = least(divide_up(arguments.rows(), kTotalRows), kMostTotals);
  return dim3(static_cast<unsigned>(blocks > 0 ? blocks : 1));
}

Status launch_all(const RowArguments& arguments, const LaunchContext& context) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  const bool counts =
      arguments.reduction == RowReduction::mean && (Loss::labelled || arguments.mask);
  auto* const slot = static_cast<Slot*>(context.slot);
  auto* const totals = static_cast<Totals*>(context.workspace);
  auto* const numbers = reinterpret_cast<double*>(totals + 1);
  RowMemory memory;
  memory.arrived = &slot->arrived[0];
  memory.count = counts ? numbers : nullptr;
  memory.losses = sums ? numbers + 1 : nullptr;
  Status status;
  if (context.clear_slot)
    status =
        status_of(cudaMemsetAsync(slot, 0, kSlotBytes, static_cast<cudaStream_t>(context.stream)),
                  "clearing the slot of rows");
  if (status.ok() && counts)
    status = launch("count_kernel", count_kernel<Functor, Stored>, total_grid(arguments),
                    kTotalThreads, false, context.stream, arguments, memory, totals);
  if (status.ok())
    status = arguments.wants_gradient() ? launch_best<Functor, true>(arguments, memory, context)
                                        : launch_best<Functor, false>(arguments, memory, context);
  if (status.ok() && sums)
    status = launch("sum_kernel", sum_kernel<Stored>, total_grid(arguments), kTotalThreads, false,
                    context.stream, arguments, memory, totals);
  return status;
}

}  // namespace

const LaunchFunctor LOSSCLI_JOIN(functor_, LOSSCLI_DTYPE) = launch_all;

}  // namespace losscli::cuda
