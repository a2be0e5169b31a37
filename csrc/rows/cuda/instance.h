// The kernels for rows of one dtype, as the library calls them.
#pragma once

#include "core/launch.h"
#include "rows/cuda/policies.h"
#include "rows/kernels.h"

namespace losscli::cuda {

struct RowInstance {
  size_t (*workspace)(const RowArguments&);
  Status (*launch)(const RowArguments&, const RowPolicy&, const LaunchContext&);
};

extern const RowInstance rows_float32, rows_float64, rows_float16, rows_bfloat16;

}  // namespace losscli::cuda
