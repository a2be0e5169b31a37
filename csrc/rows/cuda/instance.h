// The kernels for rows of one dtype, as the library calls them.
#pragma once

#include "core/launch.h"
#include "rows/kernels.h"

namespace losscli::cuda {

using LaunchRows = Status (*)(const RowArguments&, const LaunchContext&);

extern const LaunchRows rows_float32, rows_float64, rows_float16, rows_bfloat16;

}  // namespace losscli::cuda
