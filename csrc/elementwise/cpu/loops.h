// The loops over a tile, compiled in loops.cpp.
#pragma once

#include "elementwise/cpu/convert.h"
#include "elementwise/cpu/loss.h"
#include "elementwise/cpu/tile.h"
#include "reduce/cpu/compensated.h"

namespace losscli::cpu {

template <typename Stored>
using LossTile = Tile<Stored, kOperands>;

// Computes a tile; returns the sum of the values where the loop sums them.
template <typename Stored>
using Loop = Compensated (*)(const Loss<RealOf<Stored>>&, const LossTile<Stored>&);

template <typename Stored>
struct Loops {
  // The loop that sums the values and computes gradients, a bit of `gradients` an operand, in the
  // same pass.
  static Loop<Stored> sum(unsigned gradients);

  // The loop that computes gradients; `each` tells whether the upstream gradient differs from
  // element to element.
  static Loop<Stored> gradient(unsigned gradients, bool each);

  // The loop that computes values.
  static Loop<Stored> value();

  // Runs a loop over a tile of any count.
  static Compensated run(Loop<Stored> loop, const Loss<RealOf<Stored>>& loss,
                         const LossTile<Stored>& tile);
};

}  // namespace losscli::cpu
