// Launches of the kernels of rows.
#pragma once

#include "core/cuda/launch.h"
#include "core/operand.h"
#include "rows/kernels.h"

namespace losscli::cuda {

// The kernels for rows of each dtype, as the library calls them.
using LaunchRows = Status (*)(const RowArguments&, const LaunchContext&);
extern const LaunchRows rows_float32, rows_float64, rows_float16, rows_bfloat16;

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct Blocks {
  int threads;         // of each
  int64_t shared = 0;  // bytes of dynamic shared memory
  int cluster = 0;     // blocks of a cluster, which shares a row; 0: there are no clusters
  int64_t most = 0;    // clusters at most; 0: those that are on the device at once
  // Whether they may begin before the launch ahead of them has ended, if the GPU can. The kernel
  // awaits that itself, by await_ahead: what it reads before must be older than the call.
  bool early = false;
};

// Launches as many clusters of blocks as are `needed`, up to the most.
template <typename... Parameters, typename... Arguments>
Status launch_grid(const char* name, void (*kernel)(Parameters...), const Blocks& shape,
                   int64_t needed, const LaunchContext& context, const Arguments&... arguments) {
  const cudaError_t pending = cudaPeekAtLastError();
  if (is_of_running_work(pending)) return status_of(pending, name);
  cudaError_t error = cudaSuccess;
  // Of 48 KiB that need no word some are a kernel's own.
  if (shape.shared > 40 * 1024)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shape.shared));
  if (error != cudaSuccess) return status_of(error, name);
  const unsigned blocks = shape.cluster > 0 ? static_cast<unsigned>(shape.cluster) : 1;
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared);
  config.stream = static_cast<cudaStream_t>(context.stream);
  config.attrs = attributes;
  if (shape.cluster > 0) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {blocks, 1, 1};
  }
  int64_t clusters = shape.most;
  if (clusters == 0) {
    config.gridDim = dim3(blocks);
    int at_once = 0;
    error = shape.cluster > 0 ? cudaOccupancyMaxActiveClusters(&at_once, kernel, &config)
                              : cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                    &at_once, kernel, shape.threads, config.dynamicSmemBytes);
    if (error == cudaSuccess && at_once == 0) error = cudaErrorLaunchOutOfResources;
    if (error != cudaSuccess) return status_of(error, name);
    clusters = shape.cluster > 0 ? at_once : int64_t{at_once} * context.device.multiprocessors;
  }
  config.gridDim = dim3(static_cast<unsigned>(least(clusters, needed)) * blocks);
  if (shape.early && context.device.clusters) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments...), name, config.gridDim,
                       shape.threads);
}

}  // namespace losscli::cuda
