// The memory in which the blocks of one launch add up, and the kernels that some strategies follow
// it with.
#pragma once

#include "launch.h"
#include "reduce.cuh"
#include "slots.h"

namespace losscli::cuda {

inline int64_t group_count(int64_t count) { return divide_up(count, kGroup); }

// Sums that a launch of so many blocks keeps in the workspace.
inline int64_t workspace_sums(Strategy strategy, int64_t blocks) {
  switch (strategy) {
    case Strategy::single_pass:
      return blocks <= kPostedBlocks ? 0 : blocks + group_count(blocks);
    case Strategy::two_pass:
      return blocks;
    case Strategy::tree:
      return blocks + group_count(blocks);
    default:
      return 0;
  }
}

inline Ending ending_of(Strategy strategy, int64_t blocks) {
  if (strategy != Strategy::single_pass && strategy != Strategy::atomic) return Ending::left;
  if (blocks == 1) return Ending::alone;
  if (strategy == Strategy::atomic) return Ending::atomic;
  if (blocks <= kClusterBlocks && launches_clusters()) return Ending::cluster;
  return blocks <= kPostedBlocks ? Ending::posted : Ending::counted;
}

// What one launch adds up in.
class SumMemory {
 public:
  SumMemory(const LossArguments& arguments, const LaunchContext& context, int64_t blocks)
      : stream_(static_cast<cudaStream_t>(context.stream)) {
    sum.ending = ending_of(arguments.strategy, blocks);
    sum.blocks = static_cast<double*>(
        arguments.strategy == Strategy::torch_sum ? arguments.value : context.workspace);
    if (sum.blocks) sum.groups = sum.blocks + blocks;
    if (sum.ending == Ending::alone || sum.ending == Ending::cluster || sum.ending == Ending::left)
      return;
    Slot* slot = find_slot(stream_);
    if (!slot) {
      check(cudaMallocAsync(&temporary_, sizeof(Slot), stream_), "allocating the slot of a sum");
      const cudaError_t cleared = cudaMemsetAsync(temporary_, 0, sizeof(Slot), stream_);
      if (cleared != cudaSuccess) cudaFreeAsync(temporary_, stream_);
      check(cleared, "clearing the slot of a sum");
      slot = static_cast<Slot*>(temporary_);
    }
    sum.total = &slot->total;
    sum.arrived = slot->arrived;
    sum.posted = slot->posted;
  }

  SumMemory(const SumMemory&) = delete;
  SumMemory& operator=(const SumMemory&) = delete;

  ~SumMemory() {
    if (temporary_) cudaFreeAsync(temporary_, stream_);
  }

  GridSum sum;

 private:
  cudaStream_t stream_;
  void* temporary_ = nullptr;  // where all slots are taken
};

// Adds up what the blocks have left: all at once, or a group a block until one sum is left.
template <typename Stored>
void add_sums(const LossArguments& arguments, const LaunchContext& context, int64_t blocks) {
  auto* sums = static_cast<double*>(context.workspace);
  const int64_t each = arguments.strategy == Strategy::two_pass ? blocks : kGroup;
  for (int64_t count = blocks, left; count > 0; sums += count, count = left == 1 ? 0 : left) {
    left = divide_up(count, each);
    add_sums_kernel<Stored>
        <<<static_cast<unsigned>(left), kGroup, 0, static_cast<cudaStream_t>(context.stream)>>>(
            sums, count, each, sums + count, arguments.scale, arguments.value);
    check_launch("add_sums_kernel", left, kGroup);
  }
}

}  // namespace losscli::cuda
