// One tile of the space: so many elements, one behind the other, as the loss's formula takes them.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace losscli::cpu {

// Long enough to hide what is done once a tile, short enough that what is prepared of a tile stays
// in the first-level cache, and that a float sum over it, of 16 values a lane, keeps its digits.
constexpr int64_t kTile = 1024;

// Elements that are computed together: a few vectors' worth, so that their operations overlap.
constexpr int kLanes = 64;

// What takes a tile of results.
template <typename Stored>
struct TileOutput {
  Stored* data = nullptr;  // null where the results are not wanted
  bool streamed = false;   // whether they go past the caches; see can_stream
};

// All of a tile is of one type in memory: what operands of mixed dtypes have in common is Real.
template <typename Stored, int kOperands>
struct Tile {
  int64_t count = 0;
  const Stored* operands[kOperands] = {};
  const Stored* grad_output = nullptr;  // multiplies the gradients, or null
  RealOf<Stored> scale = 1;             // multiplies the gradients
  TileOutput<Stored> value;
  TileOutput<Stored> gradients[kOperands];
};

}  // namespace losscli::cpu
