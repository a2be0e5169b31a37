// One tile of contiguous elements: where a loss's formula meets the data. The engine knows losses
// only through these functions.
#pragma once

#include <cstdint>
#include <tuple>

#include "convert.h"
#include "elementwise.h"

namespace losscli::cpu {

// Long enough to hide the call, short enough that what is prepared of a tile stays in the
// first-level cache, and that a float sum over it, of 16 values a lane, keeps its digits.
constexpr int64_t kTile = 1024;

template <typename Stored>
struct LossTile {
  int64_t count;
  const Stored* input;
  const Stored* target;
  const Stored* grad_output;  // multiplies the gradients, or null
  RealOf<Stored> scale;       // multiplies the gradients
  Stored* value;              // or null
  Stored* grad_input;         // or null
  Stored* grad_target;        // or null
  bool stream;                // whether what is written goes past the caches; see can_stream
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

// Returns the sum of the values where `sum` asks for it; then no array takes them.
template <typename Stored>
using LossFunction = RealOf<Stored> (*)(const double* parameters, const LossTile<Stored>& tile,
                                        bool sum);

template <typename Real>
using DoubleBackwardFunction = void (*)(const double* parameters,
                                        const DoubleBackwardTile<Real>& tile);

// What there is of each loss, to be told apart by type.
using TileFunctions = std::tuple<LossFunction<float>, LossFunction<double>, LossFunction<Half>,
                                 LossFunction<BFloat16>, DoubleBackwardFunction<float>,
                                 DoubleBackwardFunction<double>>;

}  // namespace losscli::cpu
