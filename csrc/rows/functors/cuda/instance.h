// The kernels for rows of one dtype, as the library calls them.
#pragma once

#include "core/launch.h"
#include "rows/kernels.h"

namespace losscli::cuda {

using LaunchFunctor = Status (*)(const RowArguments&, const LaunchContext&);

extern const LaunchFunctor functor_float32, functor_float64, functor_float16, functor_bfloat16;

}  // namespace losscli::cuda
