// The entry point of a library.
#pragma once

#include "rows/kernels.h"

namespace losscli::cpu {

Status run_rows(const RowArguments& arguments, const LaunchContext& context);

}  // namespace losscli::cpu
