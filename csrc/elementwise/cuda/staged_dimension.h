// Which operands are worth staging in shared memory.
#pragma once

#include "core/operand.h"
#include "elementwise/cuda/policies.h"

namespace losscli::cuda {

// The dimension along which an operand is contiguous that is not so along the first, where tiles
// are worth it; 0 where there is none.
inline int staged_dimension(const Operand& operand, const Space& space) {
  if (operand.strides[0] == 0 || operand.strides[0] == 1 || space.sizes[0] < kLeastStaged) return 0;
  for (int d = 1; d < space.dimensions; ++d)
    if (operand.strides[d] == 1 && space.sizes[d] >= kLeastStaged) return d;
  return 0;
}

// Whether steps of an operand, in bytes, fit into 32 bits, as tiles take them.
inline bool has_short_steps(const Operand& operand, const Space& space) {
  const int64_t most = (int64_t{1} << 31) / item_bytes(operand.dtype);
  for (int d = 0; d < space.dimensions; ++d)
    if (operand.strides[d] >= most || -operand.strides[d] >= most) return false;
  return true;
}

}  // namespace losscli::cuda
