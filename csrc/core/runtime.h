// What a device keeps for the kernels of all losses: memory that is zero between launches, and what
// is expected of upstream gradients. One library a device, which exports `losscli_runtime`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/expectation.h"
#include "core/launch.h"

namespace losscli {

// Blocks that post their sums to one that collects them; more of them count each other in.
constexpr int64_t kPostedBlocks = 132 * 64;

// Partial sums that the last block of a group adds up, and so the most groups that are counted.
constexpr int kGroup = 512;

// Blocks that exchange their sums within one cluster.
constexpr int kMostClusterBlocks = 8;

// Words of 8 bytes that a block's partial sum takes at most: two for a sum that is compensated.
constexpr int kMostWords = 2;

// Memory for the sums of one launch, zero before it and left zero by it.
struct Slot {
  double total[kMostWords];
  unsigned arrived[kGroup + 2];
  unsigned long long posted[kMostWords * kPostedBlocks];
};

constexpr size_t kSlotBytes = sizeof(Slot);

struct Runtime {
  uint64_t interface;
  // The facts of the current device. Never fails: without an answer no sum relies on anything.
  DeviceFacts (*facts)();
  // The number of the capture that a stream takes part in, 0 where it does not.
  uint64_t (*capture)(void* stream);
  // A slot that no other launch uses at the same time, or null where there is none: launches on one
  // stream share one, a captured launch keeps its own for as long as its graph lives.
  void* (*slot)(void* stream);
  // An expectation for calls on a stream, at most one at a time; null where there is none to be
  // had. A captured call keeps its own for as long as its graph lives: it is not to be given back.
  Expectation* (*expectation)(void* stream);
  void (*give_back)(Expectation* expectation);
  // Where the host reads, without waiting, whether an expectation has lost its confidence; null
  // where it cannot.
  const volatile int32_t* (*doubted)(const Expectation* expectation);
  // Captured backward: notes, after the launch, that the gradients have left.
  Status (*forget)(Expectation* expectation, void* stream);
};

}  // namespace losscli
