// The kernels for rows of one dtype, as the library calls them.
#pragma once

#include "rowfunctors/call.h"

namespace losscli::rowfunctors {

// Null, or what went wrong.
using Run = const char* (*)(const Call&);

extern const Run run_float32, run_float64, run_float16, run_bfloat16;

}  // namespace losscli::rowfunctors
