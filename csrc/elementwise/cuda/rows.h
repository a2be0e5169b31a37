// Operands that are one row, repeated over the whole space, beside others that are dense.
#pragma once

#include "core/operand.h"
#include "core/platform.h"
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

}  // namespace losscli::cuda
