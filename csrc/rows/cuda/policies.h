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
  columns,    // many rows in the shared memory of a block: neighbours in memory are of several rows
  groups,     // short rows, of which a block has one or several, and ends
  slots,      // each operand's parts of a row in slots of the warps of a team
  general,    // any layout and dtype
};

// What the kernels that read a row once make of the logits.
enum class RowMode {
  plain,
  smoothed,  // each class has a share of the loss
  capped,    // bent by a softcap, and each class may have a share
};

// The largest softcap of RowMode::capped, by the rounding of exponents.
constexpr double kMostCap = 0x1p+18;

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

// Threads that share a row in their registers, and the vectors of 16 bytes of each.
struct RowGroup {
  int threads, vectors;
  int64_t bytes() const { return int64_t{16} * threads * vectors; }
};

// Teams of warps: the first whose vectors hold a row.
constexpr RowGroup kTeams[] = {{32, 1},  {32, 2},  {32, 4},   {32, 8},
                               {32, 16}, {64, 16}, {128, 16}, {256, 16}};
constexpr int64_t kLeastTeamBytes = 160;  // of a row

// Warps of a block, for lanes of so many vectors.
LOSSCLI_HOST_DEVICE constexpr int team_warps(int vectors) {
  return vectors > 8 ? 16 : vectors > 4 ? 20 : 24;
}

constexpr int kMostTeamSlots = 8;

// The first whose vectors hold a row, and the threads of a multiprocessor.
constexpr int kRegistersThreads = 1024;
constexpr RowGroup kRegisters[] = {{4, 2},   {32, 1},  {32, 2},  {32, 4}, {128, 2},
                                   {128, 4}, {256, 4}, {512, 4}, {512, 8}};

// The vectors that a lane of the ring may have of a slot: in modes other than plain the last of
// them. An empty one costs what a full one costs, so the number of warps and vectors is chosen that
// leaves the fewest of them empty. Two blocks of 8 warps share a multiprocessor where their rows
// fit: while the warps of one wait for each other, those of the other compute.
constexpr int kRingVectors[] = {3, 5, 8};
constexpr int kMostRingVectors = 8;
constexpr bool is_ring(RowMode mode, bool has_gradient, int vectors) {
  return vectors == kMostRingVectors || (mode == RowMode::plain && (has_gradient || vectors >= 5));
}
constexpr int kMostRingWarps = 16;
constexpr int kForwardSlots = 3;
constexpr int kRingBytes = 222 * 1024;      // of a multiprocessor's shared memory, for the slots
constexpr int kHalfRingBytes = 111 * 1024;  // of two blocks' each
// Rows from which on a ring is faster than a team of warps, with gradients.
constexpr int64_t kLeastRingBytes = 40 * 1024;

// Rows of up to so many bytes are taken many to a block.
constexpr int64_t kMostLineBytes = 512;

// Columns: rows of a block at most, blocks that there should be, threads of a multiprocessor, and
// the shared memory that its blocks have. What a thread does for a row besides its classes is much.
constexpr int kMostColumns = 64;
constexpr int kColumnBlocks = 132;
constexpr int kColumnThreads = 640;
constexpr int kMostColumnThreads = 1024;
constexpr int kColumnBytes = 220 * 1024;
constexpr int kOlderColumnBytes = 64 * 1024;  // of GPUs without clusters
constexpr int kLeastColumnBytes = 32;         // of a class

struct ColumnShape {
  int columns = 0;  // rows of a block
  int threads = 0;
  int copy_bytes = 0;  // that are copied at once: 2, 4 or 16
  int pitch = 0;       // from a class of a row to the next: 1 in lines, or `columns`
  int line = 0;        // from a line to the next, in elements
  int unit = 1;        // elements of a line that are read at once

  // Rows that are summed up together: those of a warp.
  LOSSCLI_HOST_DEVICE int summed() const { return columns < 32 ? columns : 32; }
  int64_t bytes(int64_t classes, int64_t item) const {
    const int64_t elements = pitch == 1 ? int64_t{columns} * line : classes * pitch;
    return columns * 24 + elements * item + threads * 8;
  }
};

// What follows is of the walks of all losses: slots and general.

// Packs of 16 bytes of each operand that a thread asks for before it computes: with 1,024 threads
// on a multiprocessor 64 KiB are under way or more, twice what a memory of 4.6 TB/s delivers in its
// latency.
LOSSCLI_HOST_DEVICE constexpr int packs_ahead(int rows) { return rows == 1 ? 4 : 2; }

// Rows of a warp each, of one thread of each warp, or of one thread, in a block.
constexpr int kWarpRowThreads = 256;
constexpr int kColumnTeam = kWarpRowThreads / 32;
constexpr int kOneThread = 1;

LOSSCLI_HOST_DEVICE constexpr int block_threads(int threads) {
  return threads <= 32 ? kWarpRowThreads : threads;
}

// Blocks on a multiprocessor, of which the registers of a thread follow: 64 for the largest, for
// two of which there is shared memory, and 80 for the others.
LOSSCLI_HOST_DEVICE constexpr int least_blocks(int threads, size_t item, bool reads) {
  return item == 8        ? 1
         : threads == 512 ? 2
         : !reads         ? 1536 / block_threads(threads)
                          : 768 / block_threads(threads);
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

// The slots kernel: warps of a block, and vectors of 16 bytes of each operand that a lane has at
// once, fewer of which fit its registers with shares and bent logits.
constexpr int kMostSlots = 32;
constexpr int kMostCluster = 8;
constexpr int kToldBytes = 32;               // what a warp tells others of a row
constexpr int64_t kLeastSlotRowBytes = 256;  // of a row
template <typename Loss>
struct SlotBlock {
  static constexpr int kWarps = 16;
  static constexpr int kOperands = Loss::rows + Loss::bends + (Loss::shares && Loss::labelled);
  static constexpr int kVectors = kOperands == 1 ? 8 : kOperands == 2 ? 4 : 2;
  static constexpr int kTold = 2 * kToldBytes * kWarps;  // bytes, for each block
  // Of a block's slots; CUDA keeps 1 KiB of each block for itself.
  static constexpr int64_t kBytes = 226 * 1024 - kTold * kMostCluster;
};

// The groups kernel: warps of a block, blocks of a multiprocessor, and vectors of each operand that
// a slot has of a lane. Blocks end after their rows, so that a multiprocessor that is ahead takes
// more of them. A warp waits for memory, and for its own shuffles, so that 24 of 80 registers are
// faster than 16 of 128. Shares need the registers.
constexpr int kGroupSlots = 2;
constexpr int kWideLanes = 128;                // where rows are few, or very long
constexpr int64_t kManyRows = 24;              // for each multiprocessor
constexpr int64_t kFewRows = 8;                // the same, with gradients
constexpr int64_t kMostGroupBytes = 8 * 1024;  // of all operands of a row, for eight lanes
constexpr int64_t kMostShortBytes = 5 * 1024;  // the same, with gradients
constexpr int64_t kMostHeldBytes = 32 * 1024;  // for a warp, with gradients
constexpr int64_t kMostStreamBytes = 64 * 1024;
template <typename Loss, int kLanes, int kGradients>
struct GroupBlock {
  static constexpr bool kAgain = kGradients > 0 || Loss::later_sums > 0, kWide = kLanes > 32;
  static constexpr int kWarps = kWide ? kLanes / 32 : 2, kThreads = kWarps * 32;
  static constexpr int kRows = kThreads / kLanes;
  static constexpr int kBlocks = kWide ? 4 : kAgain && !Loss::shares ? 12 : 8;
  static constexpr int kVectors = kWide ? 1 : Loss::rows < 3 ? 4 : 2;
  static constexpr int kSlotBytes = Loss::rows * kVectors * 32 * 16;  // of a warp
};

// Rows up to which a walk itself counts what a mean divides by, and sums the losses.
constexpr int64_t kMostCounted = 512;

struct SlotShape {
  int lanes = 0;        // groups: that share a row
  bool whole = false;   // whether rows are whole vectors
  int team = 1;         // warps of a block that share a row
  int cluster = 1;      // blocks that share it
  int slots = 0;        // of a warp
  int slot_bytes = 0;   // of each operand
  int piece_slots = 0;  // of a warp's part of a row
};

struct RowPolicy {
  RowAccess access = RowAccess::general;
  RowMode mode = RowMode::plain;
  int entry = 0;       // teams, registers and ring: which of kTeams, kRegisters or kRingVectors
  bool whole = false;  // teams: rows of whole vectors
  TeamShape slots;
  int cluster = 0;  // ring: blocks of a cluster
  RingShape ring;
  ColumnShape columns;
  SlotShape parts;
  GeneralPolicy general;
};

}  // namespace losscli::cuda
