// Work divided among the caller's threads.
#pragma once

#include "elementwise.h"

namespace losscli::cpu {

// Call body(i) for each i of [0, count).
template <typename Body>
void parallel(const LaunchContext& context, int64_t count, Body body) {
  context.parallel(
      count,
      [](void* opaque, int64_t first, int64_t last) {
        auto& call = *static_cast<Body*>(opaque);
        for (int64_t i = first; i < last; ++i) call(i);
      },
      &body);
}

}  // namespace losscli::cpu
