// Launches of kernels whose blocks stay, and take one row after the other.
#pragma once

#include "core/cuda/launch.h"
#include "core/operand.h"

namespace losscli::cuda {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

struct Staying {
  int threads;
  int64_t shared;      // bytes of dynamic shared memory
  int cluster = 0;     // blocks of a cluster, which shares a row; 0: there are no clusters
  int64_t most = 0;    // clusters that are on the device at once; 0: CUDA is asked
  bool early = false;  // whether they may begin before the launch ahead of them has ended
};

inline cudaLaunchConfig_t config_of(int64_t blocks, int threads, int64_t shared,
                                    const LaunchContext& context) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = static_cast<cudaStream_t>(context.stream);
  return config;
}

// Launches a kernel, `early` before the one ahead of it has ended, if the GPU can: the kernel
// awaits that itself, by await_ahead. What it reads before must be older than the call, whose first
// launch is therefore never early; the end of the last one is that of all.
template <typename... Parameters, typename... Arguments>
Status launch_after(const char* name, void (*kernel)(Parameters...), cudaLaunchConfig_t config,
                    bool early, const LaunchContext& context, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  if (early && context.device.clusters) {
    cudaLaunchAttribute& early = attributes[0];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    if (config.numAttrs > 0) attributes[1] = config.attrs[0];
    config.attrs = attributes;
    ++config.numAttrs;
  }
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments...), name, config.gridDim,
                       static_cast<int>(config.blockDim.x));
}

// The same for blocks that end, so many of them.
template <typename... Parameters, typename... Arguments>
Status launch_blocks(const char* name, void (*kernel)(Parameters...), int64_t blocks, int threads,
                     int64_t shared, bool early, const LaunchContext& context,
                     const Arguments&... arguments) {
  const cudaError_t pending = cudaPeekAtLastError();
  if (is_of_running_work(pending)) return status_of(pending, name);
  if (shared > 48 * 1024) {
    const Status status =
        status_of(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(shared)),
                  name);
    if (!status.ok()) return status;
  }
  return launch_after(name, kernel, config_of(blocks, threads, shared, context), early, context,
                      arguments...);
}

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
  cudaLaunchConfig_t config = config_of(blocks, shape.threads, shape.shared, context);
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
  return launch_after(name, kernel, config, shape.early, context, arguments...);
}

}  // namespace losscli::cuda
