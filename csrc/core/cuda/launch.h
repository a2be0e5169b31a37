// What every launch goes through: the grid, and a status that names the kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>

#include "core/launch.h"

namespace losscli::cuda {

// Whether only a running kernel makes this error: then it is of work that was launched before, and
// every call reports it from then on.
inline bool is_of_running_work(cudaError_t error) {
  constexpr cudaError_t kErrors[] = {
      cudaErrorIllegalAddress,     cudaErrorLaunchFailure,      cudaErrorLaunchTimeout,
      cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,  cudaErrorInvalidAddressSpace,
      cudaErrorInvalidPc,          cudaErrorHardwareStackError, cudaErrorAssert,
      cudaErrorECCUncorrectable,   cudaErrorNvlinkUncorrectable};
  return std::find(std::begin(kErrors), std::end(kErrors), error) != std::end(kErrors);
}

// Whether the kernels cannot run here as they were compiled.
inline bool is_of_build(cudaError_t error) {
  return error == cudaErrorNoKernelImageForDevice || error == cudaErrorInsufficientDriver ||
         error == cudaErrorUnsupportedPtxVersion || error == cudaErrorInvalidDeviceFunction ||
         error == cudaErrorInvalidPtx || error == cudaErrorJitCompilerNotFound;
}

// The status of a call to CUDA; `what` names it.
inline Status status_of(cudaError_t error, const char* what) {
  Status status;
  if (error == cudaSuccess) return status;
  cudaGetLastError();  // reported here, and not once more by who asks next
  const char* const name = cudaGetErrorName(error);
  const char* const text = cudaGetErrorString(error);
  if (is_of_running_work(error)) {
    status.code = StatusCode::failed_earlier;
    std::snprintf(status.message, sizeof status.message,
                  "before %s CUDA reported %s (%s) of work that was launched earlier. Set "
                  "CUDA_LAUNCH_BLOCKING=1 to find which",
                  what, name, text);
  } else if (is_of_build(error)) {
    status.code = StatusCode::failed;
    std::snprintf(status.message, sizeof status.message,
                  "%s: %s: the kernels were built for another GPU or a newer driver. Run `losscli "
                  "build --force --device cuda` on this machine",
                  what, name);
  } else {
    status.code =
        error == cudaErrorMemoryAllocation ? StatusCode::out_of_memory : StatusCode::failed;
    std::snprintf(status.message, sizeof status.message, "%s: %s, %s", what, name, text);
  }
  return status;
}

inline Status launch_status(cudaError_t error, const char* kernel, dim3 grid, int threads) {
  if (error == cudaSuccess) return {};
  char what[96];
  if (grid.y == 1) {
    std::snprintf(what, sizeof what, "%s<<<%u, %d>>>", kernel, grid.x, threads);
  } else {
    std::snprintf(what, sizeof what, "%s<<<(%u, %u), %d>>>", kernel, grid.x, grid.y, threads);
  }
  return status_of(error, what);
}

// Launches a kernel, its grid one cluster where asked for.
template <typename... Parameters, typename... Arguments>
Status launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads, bool cluster,
              void* stream, const Arguments&... arguments) {
  const cudaError_t pending = cudaPeekAtLastError();
  if (is_of_running_work(pending)) return launch_status(pending, name, grid, threads);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = grid.x;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = cluster ? 1 : 0;
  return launch_status(cudaLaunchKernelEx(&config, kernel, arguments...), name, grid, threads);
}

}  // namespace losscli::cuda
