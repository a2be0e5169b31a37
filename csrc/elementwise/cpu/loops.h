// The loops over a tile, compiled in loops.cpp.
#pragma once

#include "elementwise/cpu/loss.h"
#include "elementwise/cpu/tile.h"
#include "reduce/cpu/compensated.h"

namespace losscli::cpu {

template <typename Real>
using LossTile = Tile<Real, kOperands>;

// Computes a tile; returns the sum of the values where the loop sums them.
template <typename Real>
using Loop = Compensated (*)(const Loss<Real>&, const LossTile<Real>&);

// The loop that sums the values and computes gradients, a bit of `gradients` an operand, in the
// same pass.
template <typename Real>
Loop<Real> sum_loop(unsigned gradients);

// The loop that computes gradients; `each` tells whether the incoming gradient differs from element
// to element.
template <typename Real>
Loop<Real> gradient_loop(unsigned gradients, bool each);

// The loop that computes values.
template <typename Real>
Loop<Real> value_loop();

// Runs a loop over a tile of any count.
template <typename Real>
Compensated run_loop(Loop<Real> loop, const Loss<Real>& loss, const LossTile<Real>& tile);

}  // namespace losscli::cpu
