// What the walks of cross entropy ask of its arguments.
#pragma once

#include "rows/kernels.h"

namespace losscli {

LOSSCLI_HOST_DEVICE int64_t ignore_index(const RowArguments& arguments) {
  return static_cast<int64_t>(arguments.parameters[kIgnoreIndex]);
}

}  // namespace losscli
