// One tile of the space: so many elements, one behind the other, as the loss's formula takes them.
#pragma once

#include <cstdint>

namespace losscli::cpu {

// Long enough to hide what is done once a tile, short enough that what is prepared of a tile stays
// in the first-level cache, and that a float sum over it, of 16 values a lane, keeps its digits.
constexpr int64_t kTile = 1024;

// What takes a tile of results.
template <typename Real>
struct TileOutput {
  Real* data = nullptr;   // null where the results are not wanted
  bool streamed = false;  // whether they go past the caches; see can_stream
};

template <typename Real, int kOperands>
struct Tile {
  int64_t count = 0;
  const Real* operands[kOperands] = {};
  const Real* grad_output = nullptr;  // multiplies the gradients, or null
  Real scale = 1;                     // multiplies the gradients
  TileOutput<Real> value;
  TileOutput<Real> gradients[kOperands];
};

}  // namespace losscli::cpu
