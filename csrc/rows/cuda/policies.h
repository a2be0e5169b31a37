// Which walk takes rows of a length, and with how many threads: data, that of cross entropy found
// by measuring on an H200.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "rows/kernels.h"

namespace losscli::cuda {

enum class RowAccess {
  teams,      // in the registers of a team of warps, and the next in its slots
  registers,  // a row in the registers of a group of threads
  ring,       // in the shared memory of a cluster
  slots,      // each operand's parts of a row in slots of the warps of a team
  general,    // any layout and dtype
};

// What the kernels that read a row once make of the logits.
enum class RowMode {
  plain,
  smoothed,  // each class has a share of the loss
  capped,    // bent by a softcap, and each class may have a share
};

// The largest softcap of RowMode::capped in 16 bits, by the rounding of a bent logit, and the
// largest with a polynomial of few terms.
constexpr double kMostCap = 1024;
constexpr double kFewCap = 128;

struct RingShape {
  int warps = 0;        // of a block
  int slots = 0;        // of a warp
  int slot_bytes = 0;   // whole lines
  int piece_slots = 0;  // of a row
};

struct TeamShape {
  int slots = 0;       // of a warp
  int slot_bytes = 0;  // a warp's part of a row
};

struct RegistersPolicy {
  int threads, vectors;
  int64_t bytes() const { return int64_t{16} * threads * vectors; }
};

struct TeamPolicy {
  int warps, vectors;  // of a team, of a lane
  int64_t bytes() const { return int64_t{16} * 32 * warps * vectors; }
};

// The first whose vectors hold a row.
constexpr TeamPolicy kTeams[] = {{1, 1},  {1, 2},  {1, 4},  {1, 8},
                                 {1, 16}, {2, 16}, {4, 16}, {8, 16}};
constexpr int64_t kLeastTeamBytes = 256;
// Warps of a block, for lanes of so many vectors.
LOSSCLI_HOST_DEVICE constexpr int team_warps(int vectors) {
  return vectors > 8 ? 16 : vectors > 4 ? 20 : 24;
}

constexpr int kMostTeamSlots = 8;

// The first whose vectors hold a row.
constexpr RegistersPolicy kRegisters[] = {{4, 2},   {32, 1},  {32, 2},  {32, 4}, {128, 2},
                                          {128, 4}, {256, 4}, {512, 4}, {512, 8}};

// Warps of a block of the ring: of these the number that leaves the fewest vectors of its lanes
// empty, for an empty one costs what a full one costs. At 128,256 classes of bfloat16 with
// gradients 16 warps take 1,027 us, 8 take 1,054, and 12 whose slots of six vectors are not full
// took 1,127. Without gradients fewer than 12 do not read fast enough (573 us with 8, 483 with 16).
constexpr int kLeastWarps = 8;
constexpr int kLeastForwardWarps = 12;
constexpr int kMostRingWarps = 16;
constexpr int kSlotVectors = 8;         // of a lane, of a slot
constexpr int kRingBytes = 222 * 1024;  // of a block's shared memory, for the slots

// What follows is of the walks of all losses: slots and general.

// Packs of 16 bytes of each operand that a thread asks for before it computes: with 1,024 threads
// on a multiprocessor 64 KiB are under way or more, twice what a memory of 4.6 TB/s delivers in its
// latency.
LOSSCLI_HOST_DEVICE constexpr int packs_ahead(int rows) { return rows == 1 ? 4 : 2; }

// Rows of a warp each, or of one thread of each warp, in a block.
constexpr int kWarpRowThreads = 256;
constexpr int kColumnTeam = kWarpRowThreads / 32;

LOSSCLI_HOST_DEVICE constexpr int block_threads(int threads) {
  return threads <= 32 ? kWarpRowThreads : threads;
}

// Blocks on a multiprocessor, of which the registers of a thread follow: 64 for the largest, for
// two of which there is shared memory, and 80 for the others.
LOSSCLI_HOST_DEVICE constexpr int least_blocks(int threads, size_t item) {
  return item == 8 ? 1 : threads == 512 ? 2 : 768 / block_threads(threads);
}

// Packs of a row up to which a thread of each warp takes it, up to which a warp does, and up to
// which a small block does: two a thread, and four.
constexpr int64_t kColumnPacks = 2 * kColumnTeam;
constexpr int64_t kWarpPacks = 4 * 32;
constexpr int64_t kSmallBlockPacks = 4 * 128;
constexpr int kSmallBlock = 128;
constexpr int kLargeBlock = 512;

// Shared memory of a block, so that two are on a multiprocessor: while one waits for memory the
// other computes.
constexpr int64_t kHeldBytes = 110 * 1024;
constexpr int64_t kColumnHeldBytes = 72 * 1024;  // beside what the threads of a row tell each other

struct GeneralPolicy {
  int threads = 32;  // that share a row, in each block
  int cluster = 1;   // blocks that share a row
  int resident = 0;  // packs of each operand that a thread holds
};

// The slots kernel: warps of a block, blocks of a multiprocessor, and vectors of 16 bytes of each
// operand that a lane has at once, fewer of which fit its registers with shares and bent logits.
constexpr int kSlotWarps = 16;
constexpr int kSlotBlocks = 1;
template <typename Loss>
constexpr int slot_vectors() {
  constexpr int kRows = Loss::rows + Loss::bends + (Loss::shares && Loss::labelled);
  return kRows == 1 ? 8 : kRows == 2 ? 4 : 2;
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

struct RowPolicy {
  RowAccess access = RowAccess::general;
  RowMode mode = RowMode::plain;
  // Teams: which of kTeams, and the warps of a block.
  int team = 0;
  int warps = 0;
  bool whole = false;  // rows of whole vectors
  TeamShape slots;
  // Registers: threads of a row, and the vectors of each.
  int threads = 0;
  int vectors = 0;
  // Ring: blocks of a cluster.
  int cluster = 0;
  RingShape ring;
  SlotShape parts;
  GeneralPolicy general;
};

}  // namespace losscli::cuda
