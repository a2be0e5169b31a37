// Which kernel takes rows of a length, and with how many threads: data found by measuring on an
// H200.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "rows/kernels.h"

namespace losscli::cuda {

enum class RowAccess {
  teams,      // in the registers of a team of warps, and the next in its slots
  registers,  // a row in the registers of a group of threads
  ring,       // in the shared memory of a cluster
  columns,    // many rows in the registers of a block: neighbours in memory are of several rows
  any,        // read twice
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

// Columns: rows of a block at most, blocks that there should be, threads of a multiprocessor, and
// the shared memory that its blocks have.
constexpr int kMostColumns = 64;
constexpr int kColumnBlocks = 132;
constexpr int kColumnThreads = 640;
constexpr int kMostColumnThreads = 1024;
constexpr int kColumnBytes = 220 * 1024;
constexpr int kLeastColumnBytes = 32;  // of a class

struct ColumnShape {
  int columns = 0;  // rows of a block
  int threads = 0;
  int copy_bytes = 0;  // that are copied at once: 2, 4 or 16

  int bytes(int64_t classes, int64_t item) const {
    return static_cast<int>(columns * (24 + classes * item) + threads * 8);
  }
};

struct RowPolicy {
  RowAccess access = RowAccess::any;
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
  ColumnShape columns;
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

RowPolicy policy_of(const RowArguments& arguments, bool clusters);

}  // namespace losscli::cuda
