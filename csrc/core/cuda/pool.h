// Memory that is leased to CUDA graphs for as long as they live.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <mutex>
#include <vector>

namespace losscli::cuda {

// What is leased to graphs: free ones as they were left. A graph gives its own back from a thread
// of CUDA's, so their lock is never held while CUDA is called.
struct Pool {
  std::vector<void*> free;
  size_t total = 0;  // with the device's lock held
};

inline std::mutex& lease_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

struct Lease {
  Pool* pool;
  void* memory;
};

// Called once the graph is gone and no replay of it runs. May not call CUDA. The vector has room:
// take() has made it.
inline void end_lease(void* opaque) {
  const auto* lease = static_cast<Lease*>(opaque);
  {
    const std::lock_guard<std::mutex> lock(lease_mutex());
    lease->pool->free.push_back(lease->memory);
  }
  delete lease;
}

inline void* take_free(Pool& pool) {
  const std::lock_guard<std::mutex> lock(lease_mutex());
  if (pool.free.empty()) return nullptr;
  void* const memory = pool.free.back();
  pool.free.pop_back();
  return memory;
}

// Hands memory of a pool to a graph for as long as it lives; null where CUDA refuses.
inline void* lease(Pool& pool, void* memory, cudaGraph_t graph) {
  auto* const lease = new Lease{&pool, memory};
  cudaUserObject_t object;
  if (cudaUserObjectCreate(&object, lease, end_lease, 1, cudaUserObjectNoDestructorSync) !=
      cudaSuccess) {
    end_lease(lease);
    return nullptr;
  }
  if (cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove) == cudaSuccess)
    return memory;
  cudaUserObjectRelease(object, 1);
  return nullptr;
}

}  // namespace losscli::cuda
