// Memory for the sums of one launch, zero before it and left zero by it, so that no launch has to
// clear anything first.
#pragma once

#include <cuda_runtime_api.h>

#include "tuning.h"

namespace losscli::cuda {

struct Slot {
  double total;                              // of Ending::atomic
  unsigned arrived[kGroup + 1];              // of Ending::counted, and atomic
  unsigned long long posted[kPostedBlocks];  // of Ending::posted
};

// A slot that no other launch uses at the same time: launches on one stream follow each other and
// share one, a launch that is captured keeps its own for as long as the graph lives. So one graph
// is not to be replayed beside itself, as an executable made of it twice could be, or the same
// child in two branches: each would take the other's sums, and one might wait for ever. Null where
// all are taken, or CUDA does not answer.
Slot* find_slot(cudaStream_t stream);

// Whether clusters of blocks can be launched on the current device, by the kernels as compiled.
bool launches_clusters();

}  // namespace losscli::cuda
