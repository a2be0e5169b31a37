// One tile of contiguous elements in the first-level cache: where a loss's formula meets the data.
// The engine knows losses only through these functions.
#pragma once

#include <cstdint>

#include "elementwise.h"

namespace losscli::cpu {

// Long enough to hide the call, short enough that every operand of a tile stays in the cache, and
// that a float sum over it, of 16 values a lane, keeps its digits.
constexpr int64_t kTile = 1024;

template <typename Real>
struct LossTile {
  int64_t count;
  const Real* input;
  const Real* target;
  const Real* grad_output;  // multiplies the gradients, or null
  Real scale;               // multiplies the gradients
  Real* value;              // or null
  Real* grad_input;         // or null
  Real* grad_target;        // or null
};

template <typename Real>
struct DoubleBackwardTile {
  int64_t count;
  const Real* input;
  const Real* target;
  const Real* grad_output;
  const Real* grad_grad_input;
  const Real* grad_grad_target;
  Real scale;
  Real* grad_grad_output;
  Real* grad_input;
  Real* grad_target;
};

template <typename Real>
struct TileFunctions {
  // Returns the sum of the values where `sum` asks for it; then no array takes them.
  Real (*loss)(const double* parameters, const LossTile<Real>& tile, bool sum);
  void (*double_backward)(const double* parameters, const DoubleBackwardTile<Real>& tile);
};

template <typename Real>
const TileFunctions<Real>& tile_functions(LossId loss);

}  // namespace losscli::cpu
