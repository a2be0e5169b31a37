// What a pass produces, known when a kernel is compiled, and the shape of its launch.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>

#include "core/launch.h"
#include "core/operand.h"
#include "elementwise/cuda/policies.h"
#include "elementwise/kernels.h"

namespace losscli::cuda {

template <bool sum_, bool value_, bool gradient_, bool incoming_tensor_>
struct Pass {
  static constexpr bool sum = sum_;            // the loss as one scaled sum
  static constexpr bool value = value_;        // the loss of each element
  static constexpr bool gradient = gradient_;  // of some operands
  // Multiplied by a tensor of upstream gradients, not by one number.
  static constexpr bool incoming_tensor = incoming_tensor_;

  static constexpr bool writes = value || gradient;
  static constexpr bool forward = sum || value;
  static constexpr bool backward = gradient && !sum;  // a value may be asked for or not
};

using SumPass = Pass<true, false, false, false>;
using SumGradientPass = Pass<true, false, true, false>;
using ValuePass = Pass<false, true, false, false>;
using ValueGradientPass = Pass<false, true, true, false>;
using GradientPass = Pass<false, false, true, false>;
using IncomingTensorPass = Pass<false, false, true, true>;

// What a call asks for.
struct Asked {
  bool sum;
  bool value;
  bool gradient;
  bool incoming_tensor;

  explicit Asked(const ElementwiseArguments& arguments)
      : sum(arguments.reduce && arguments.value),
        value(arguments.value && !arguments.reduce),
        gradient(false),
        incoming_tensor(arguments.grad_output.data &&
                        !is_scalar(arguments.grad_output, arguments.space)) {
    for (void* const wanted : arguments.gradients) gradient |= wanted != nullptr;
    incoming_tensor &= gradient;
  }
};

// A policy, known when a kernel is compiled; policies that differ in the number of blocks share the
// kernel.
template <int threads_, int loads_, int resident_, bool past_first_level_ = false,
          bool row_ahead_ = false>
struct Shape {
  static constexpr int threads = threads_;
  static constexpr int loads = loads_;
  static constexpr int resident = resident_;
  static constexpr bool past_first_level = past_first_level_;
  static constexpr bool row_ahead = row_ahead_;
};

// Blocks by which a policy takes so many tiles.
inline int64_t blocks_for(const LaunchPolicy& policy, int64_t tiles) {
  const int64_t blocks = divide_up(tiles, policy.each);
  return blocks < 1 ? 1 : blocks < policy.blocks ? blocks : policy.blocks;
}

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
