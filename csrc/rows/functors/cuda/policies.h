// How rows of a length are shared among threads: data, chosen for an H200 and not yet measured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/platform.h"

namespace losscli::cuda {

// Packs of 16 bytes of each operand that a thread asks for before it computes: with 1,024 threads
// on a multiprocessor 64 KiB are under way or more, twice what a memory of 4.6 TB/s delivers in its
// latency.
LOSSCLI_HOST_DEVICE constexpr int packs_ahead(int rows) { return rows == 1 ? 4 : 2; }

// Rows of a warp each, in a block.
constexpr int kWarpRowThreads = 256;

LOSSCLI_HOST_DEVICE constexpr int block_threads(int threads) {
  return threads == 32 ? kWarpRowThreads : threads;
}

// Blocks on a multiprocessor, of which the registers of a thread follow: 64 for the largest, for
// two of which there is shared memory, and 80 for the others.
LOSSCLI_HOST_DEVICE constexpr int least_blocks(int threads, size_t item) {
  return item == 8 ? 1 : threads == 512 ? 2 : 768 / block_threads(threads);
}

// Packs of a row up to which a warp takes it, and up to which a small block does: four a thread.
constexpr int64_t kWarpPacks = 4 * 32;
constexpr int64_t kSmallBlockPacks = 4 * 128;
constexpr int kSmallBlock = 128;
constexpr int kLargeBlock = 512;

// Shared memory of a block, so that two are on a multiprocessor: while one waits for memory the
// other computes.
constexpr int64_t kHeldBytes = 110 * 1024;

struct FunctorPolicy {
  int threads = 32;  // that share a row, in each block
  int cluster = 1;   // blocks that share a row
  int resident = 0;  // packs of each operand that a thread holds
};

// The slots kernel: warps of a block, blocks of a multiprocessor, and vectors of 16 bytes of each
// operand that a lane has at once.
constexpr int kSlotWarps = 16;
constexpr int kSlotBlocks = 1;
LOSSCLI_HOST_DEVICE constexpr int slot_vectors(int rows) {
  return rows == 1 ? 8 : rows == 2 ? 4 : 2;
}
constexpr int kMostSlots = 32;
constexpr int kMostCluster = 8;
constexpr int kToldBytes = 32;  // what a warp tells others of a row
constexpr int64_t kSlotKernelBytes =
    226 * 1024 / kSlotBlocks -
    2 * kToldBytes * int64_t{kSlotWarps} * kMostCluster;  // of the slots of a block
constexpr int64_t kLeastSlotRowBytes = 256;               // of a row

struct SlotShape {
  int team = 1;         // warps of a block that share a row
  int cluster = 1;      // blocks that share it
  int slots = 0;        // of a warp
  int slot_bytes = 0;   // of each operand
  int piece_slots = 0;  // of a warp's part of a row

  LOSSCLI_HOST_DEVICE int warps() const { return team * cluster; }
};

}  // namespace losscli::cuda
