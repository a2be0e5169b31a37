// How operands lie: as one row, repeated over the whole space, beside others that are dense, or
// along another dimension than the first.
#pragma once

#include "core/operand.h"
#include "core/platform.h"
#include "elementwise/cuda/policies.h"
#include "elementwise/kernels.h"

namespace losscli::cuda {

// Which operands are such a row; all that are have the same length. The first is none of them.
struct Rows {
  int64_t length = -1;    // the size of the space where all are dense; -1 where some lie otherwise
  unsigned operands = 0;  // a bit each
};

inline Rows find_rows(const ElementwiseArguments& arguments, int operand_count) {
  Rows rows{arguments.space.size, 0};
  for (int n = 0; n < operand_count; ++n) {
    const Operand& operand = arguments.operands[n];
    if (is_dense(operand, arguments.space)) continue;
    const int64_t length = row_length(operand, arguments.space);
    if (n == 0 || length == 0 || (rows.operands && length != rows.length)) return {};
    rows.length = length;
    rows.operands |= 1u << n;
  }
  return rows;
}

// Whether the n-th operand is read as a row by a kernel for rows: of two operands the second is,
// which is known when the kernel is compiled.
template <int operand_count>
LOSSCLI_HOST_DEVICE bool is_row(unsigned rows, int n) {
  return operand_count == 2 ? n == 1 : (rows >> n & 1u) != 0;
}

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
