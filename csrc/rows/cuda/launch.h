// Launches of kernels whose blocks stay, and take one row after the other.
#pragma once

#include "core/cuda/launch.h"
#include "core/operand.h"

namespace losscli::cuda {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct Staying {
  int threads;
  int64_t shared;    // bytes of dynamic shared memory
  int cluster = 0;   // blocks of a cluster, which shares a row; 0: there are no clusters
  int64_t most = 0;  // clusters that are on the device at once; 0: CUDA is asked
};

// Launches as many clusters of blocks as are on the device at once, up to those `needed`.
template <typename... Parameters, typename... Arguments>
Status launch_staying(const char* name, void (*kernel)(Parameters...), const Staying& shape,
                      int64_t needed, const LaunchContext& context, const Arguments&... arguments) {
  const auto found = [&](cudaError_t error, const char* of) {
    char what[64];
    std::snprintf(what, sizeof what, "the %s of %s", of, name);
    return status_of(error, what);
  };
  Status status = found(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             static_cast<int>(shape.shared)),
                        "shared memory");
  if (!status.ok()) return status;
  const unsigned blocks = shape.cluster > 0 ? static_cast<unsigned>(shape.cluster) : 1;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = blocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared);
  config.stream = static_cast<cudaStream_t>(context.stream);
  config.attrs = &attribute;
  config.numAttrs = shape.cluster > 0 ? 1 : 0;
  int64_t clusters = shape.most;
  if (clusters == 0) {
    int at_once = 0;
    status =
        found(shape.cluster > 0 ? cudaOccupancyMaxActiveClusters(&at_once, kernel, &config)
                                : cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                                      &at_once, kernel, shape.threads, config.dynamicSmemBytes),
              "occupancy");
    if (!status.ok()) return status;
    clusters = shape.cluster > 0 ? at_once : int64_t{at_once} * context.device.multiprocessors;
    if (clusters == 0) {
      char what[64];
      std::snprintf(what, sizeof what, "no cluster of %s fits", name);
      return Status::failure(StatusCode::failed, what);
    }
  }
  config.gridDim = dim3(static_cast<unsigned>(least(clusters, needed)) * blocks);
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments...), name, config.gridDim,
                       shape.threads);
}

}  // namespace losscli::cuda
