// How many blocks a pass that sums nothing may launch: it may follow the device.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>

#include "core/launch.h"
#include "elementwise/cuda/policies.h"
#include "elementwise/kernels.h"

namespace losscli::cuda {

// Blocks of a pass; where there may be nothing to do, at most so many that the device holds them in
// kCheckRounds rounds, and of a small tensor a share of one. `kernel` is known when this is
// compiled: the answer is kept.
template <auto kernel>
int64_t backward_blocks(const ElementwiseArguments& arguments, const DeviceFacts& facts,
                        int threads, int64_t blocks) {
  if (arguments.guess != Guess::check) return blocks;
  static std::atomic<int> resident{0};
  int held = resident.load(std::memory_order_relaxed);
  if (held == 0) {
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&held, kernel, threads, 0) != cudaSuccess ||
        held < 1) {
      cudaGetLastError();  // the launch will say what is wrong
      held = 1;
    }
    resident.store(held, std::memory_order_relaxed);
  }
  const int64_t multiprocessors = facts.multiprocessors > 0 ? facts.multiprocessors : 132;
  const int64_t wave = multiprocessors * kMostThreads / threads;
  return blocks <= wave ? std::min(blocks, wave / kCheckShare)
                        : std::min(blocks, kCheckRounds * held * multiprocessors);
}

}  // namespace losscli::cuda
