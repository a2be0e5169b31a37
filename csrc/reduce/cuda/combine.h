// How the blocks of a launch come to one sum, chosen on the host.
#pragma once

#include <cstdint>

#include "core/launch.h"
#include "core/operand.h"
#include "core/runtime.h"

namespace losscli::cuda {

enum class Combine : int {
  alone,      // there is one block
  cluster,    // they are one cluster, and read each other's memory
  collector,  // each posts its sum, the first block does nothing but collect them
  counted,    // each is counted in; the last of each group adds up its group, the last group the
              // groups
  atomic,     // each adds to one number
  partial,    // each leaves its sum to another kernel
};

// What a launch adds up in.
struct GridSum {
  Combine combine = Combine::alone;
  unsigned group = 1;                    // counted: blocks of a group
  bool rounded = false;                  // partial: one double a block, whatever a sum's words
  double* total = nullptr;               // atomic: zero, and left so
  unsigned* arrived = nullptr;           // one a group, and one for the groups; zero, and left so
  unsigned long long* posted = nullptr;  // so many words a block; zero, and left so
  double* blocks = nullptr;              // a sum a block
  double* groups = nullptr;              // a sum a group
};

// Fewer multiprocessors than this, as a part of a GPU may have, count and form no cluster: the
// block that collects would keep a large part of them.
constexpr int kFewMultiprocessors = 8;

inline Combine combine_blocks(int64_t blocks, const DeviceFacts& facts) {
  if (blocks == 1) return Combine::alone;
  if (facts.multiprocessors < kFewMultiprocessors) return Combine::counted;
  if (blocks <= kMostClusterBlocks && facts.clusters) return Combine::cluster;
  return blocks <= kPostedBlocks ? Combine::collector : Combine::counted;
}

// So few blocks that one could collect them are one group, so that the order is the collector's.
inline int64_t group_size(int64_t blocks) { return blocks <= kPostedBlocks ? blocks : kGroup; }

// What the blocks' sums, of so many words each, take.
inline Needs combine_needs(Combine combine, int64_t blocks, int words) {
  Needs needs;
  needs.slot =
      combine == Combine::collector || combine == Combine::counted || combine == Combine::atomic;
  if (combine == Combine::counted)
    needs.workspace = (blocks + divide_up(blocks, group_size(blocks))) * words * sizeof(double);
  return needs;
}

inline GridSum grid_sum_memory(Combine combine, int64_t blocks, int words,
                               const LaunchContext& context) {
  GridSum sum;
  sum.combine = combine;
  sum.group = static_cast<unsigned>(group_size(blocks));
  sum.blocks = static_cast<double*>(context.workspace);
  if (sum.blocks) sum.groups = sum.blocks + blocks * words;
  if (auto* const slot = static_cast<Slot*>(context.slot)) {
    sum.total = slot->total;
    sum.arrived = slot->arrived;
    sum.posted = slot->posted;
  }
  return sum;
}

}  // namespace losscli::cuda
