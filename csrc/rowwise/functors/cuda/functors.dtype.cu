// The kernels of one functor for rows of one dtype. Compiled for each loss, once for each floating
// dtype, with -DLOSSCLI_DTYPE=float32 and so on.
#include LOSSCLI_LOSS_HEADER

#include "core/cuda/launch.h"
#include "core/operand.h"
#include "core/runtime.h"
#include "rowwise/functors/cuda/instance.h"
#include "rowwise/functors/cuda/rows_kernel.cuh"
#include "rowwise/functors/cuda/totals.cuh"

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
FunctorPolicy choose(const FunctorArguments& arguments, bool again, const DeviceFacts& device) {
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
Status launch_rows(const FunctorArguments& arguments, const FunctorPolicy& policy,
                   const FunctorMemory& memory, const LaunchContext& context) {
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
Status launch_as(const FunctorArguments& arguments, const FunctorMemory& memory,
                 const LaunchContext& context) {
  const bool again = FunctorRows<Functor, Stored, 32, kGradient>::kAgain;
  const FunctorPolicy policy = choose(arguments, again, context.device);
  if (policy.threads == 32) return launch_rows<32, kGradient>(arguments, policy, memory, context);
  if (policy.threads == kSmallBlock)
    return launch_rows<kSmallBlock, kGradient>(arguments, policy, memory, context);
  return launch_rows<kLargeBlock, kGradient>(arguments, policy, memory, context);
}

// The grid of the kernels that sum over rows.
dim3 total_grid(const FunctorArguments& arguments) {
  const int64_t blocks = least(divide_up(arguments.rows(), kTotalRows), kMostTotals);
  return dim3(static_cast<unsigned>(blocks > 0 ? blocks : 1));
}

Status launch_all(const FunctorArguments& arguments, const LaunchContext& context) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  const bool counts =
      arguments.reduction == RowReduction::mean && (Loss::labelled || arguments.mask);
  auto* const slot = static_cast<Slot*>(context.slot);
  auto* const totals = static_cast<Totals*>(context.workspace);
  auto* const numbers = reinterpret_cast<double*>(totals + 1);
  FunctorMemory memory;
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
    status = arguments.wants_gradient() ? launch_as<true>(arguments, memory, context)
                                        : launch_as<false>(arguments, memory, context);
  if (status.ok() && sums)
    status = launch("sum_kernel", sum_kernel<Stored>, total_grid(arguments), kTotalThreads, false,
                    context.stream, arguments, memory, totals);
  return status;
}

}  // namespace

const LaunchFunctor LOSSCLI_JOIN(functor_, LOSSCLI_DTYPE) = launch_all;

}  // namespace losscli::cuda
