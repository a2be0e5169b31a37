// The kernels that one translation unit holds, as the library calls them.
#pragma once

#include "core/launch.h"
#include "elementwise/kernels.h"
#include "reduce/cuda/combine.h"

namespace losscli::cuda {

// How the operands lie, which decides the kernel.
enum class Access {
  few,      // few elements, dense, but that any operand after the first may be a row that repeats
  flat,     // dense and aligned
  row,      // so, but some operands after the first are rows that repeat
  strided,  // any
  staged,   // some along the first dimension, some along another: tiles in shared memory
};

struct Instance {
  // Blocks that take tiles, each with a sum.
  int64_t (*blocks)(const ElementwiseArguments&, Access);
  Status (*launch)(const ElementwiseArguments&, Access, const GridSum&, const LaunchContext&);
};

// For the dtype of the result: all operands are of it. Where they are not, for the type computed
// in.
extern const Instance dense_float32, dense_float64, dense_float16, dense_bfloat16;
extern const Instance strided_float, strided_double;

}  // namespace losscli::cuda
