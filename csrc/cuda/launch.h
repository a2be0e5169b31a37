// What every launch goes through.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace losscli::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // reported here, and not once more by who asks next
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorName(status) + ", " +
                           cudaGetErrorString(status));
}

inline std::string launch_name(const char* kernel, int64_t blocks, int64_t threads) {
  return std::string(kernel) + "<<<" + std::to_string(blocks) + ", " + std::to_string(threads) +
         ">>>";
}

// Throws where the launch just made was refused; names it and its shape.
inline void check_launch(const char* kernel, int64_t blocks, int64_t threads) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  check(status, launch_name(kernel, blocks, threads).c_str());
}

}  // namespace losscli::cuda
