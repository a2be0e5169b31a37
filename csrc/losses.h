// The list of losses: one include and one line each. Everything else follows from it.
#pragma once

#include "losses/hinge.h"
#include "losses/mse.h"
#include "losses/smooth_l1.h"

#define LOSSCLI_FOR_EACH_LOSS(X) \
  X(smooth_l1)                   \
  X(mse)                         \
  X(hinge)

namespace losscli {

enum class LossId : int {
#define LOSSCLI_ENUMERATE(name) name,
  LOSSCLI_FOR_EACH_LOSS(LOSSCLI_ENUMERATE)
#undef LOSSCLI_ENUMERATE
};

}  // namespace losscli
