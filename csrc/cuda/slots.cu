#include <array>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "slots.h"

namespace losscli::cuda {
namespace {

constexpr int kMostDevices = 64;
constexpr int kStreamSlots = 32;
constexpr int kCapturedSlots = 96;

// Zero when the module is loaded, on each device its own.
__device__ Slot slots[kStreamSlots + kCapturedSlots];

// Tells which architecture the kernels were compiled for: all are for the same.
__global__ void compiled_kernel() {}

struct Device {
  Slot* slots = nullptr;
  bool clusters = false;
  std::unordered_map<unsigned long long, int> of_stream;
  std::vector<int> free;  // of those for captured launches

  Device() {
    for (int i = kCapturedSlots; i-- > 0;) free.push_back(kStreamSlots + i);
  }

  // Throws nothing: a device that cannot be asked has no slots. Loads the module, which a stream
  // that is being captured need not mind.
  void ask(int number) {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    int supported = 0;
    cudaFuncAttributes compiled{};
    clusters =
        cudaDeviceGetAttribute(&supported, cudaDevAttrClusterLaunch, number) == cudaSuccess &&
        cudaFuncGetAttributes(&compiled, compiled_kernel) == cudaSuccess && supported != 0 &&
        compiled.ptxVersion >= 90;
    void* address = nullptr;
    if (cudaGetSymbolAddress(&address, losscli::cuda::slots) == cudaSuccess)
      slots = static_cast<Slot*>(address);
    cudaThreadExchangeStreamCaptureMode(&mode);
    cudaGetLastError();
  }
};

struct Registry {
  std::mutex mutex;   // of everything but
  std::mutex leases;  // the free slots: a graph gives its own back while others wait for CUDA
  std::array<Device*, kMostDevices> devices{};

  // With the lock held.
  Device* current() {
    int number = 0;
    if (cudaGetDevice(&number) != cudaSuccess || number >= kMostDevices) return nullptr;
    Device*& device = devices[number];
    if (!device) device = new Device;
    if (!device->slots) device->ask(number);
    return device;
  }
};

// Never destroyed: graphs outlive static objects.
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

struct Lease {
  Device* device;
  int slot;
};

// Called once the graph is gone and no replay of it runs. May not call CUDA.
void end_lease(void* opaque) {
  const auto* lease = static_cast<Lease*>(opaque);
  {
    const std::lock_guard<std::mutex> lock(registry().leases);
    lease->device->free.push_back(lease->slot);
  }
  delete lease;
}

// A slot for as long as a graph lives.
Slot* lease_slot(cudaGraph_t graph) {
  Device* device;
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    device = registry().current();
    if (!device || !device->slots) return nullptr;
  }
  Lease* lease;
  {
    const std::lock_guard<std::mutex> lock(registry().leases);
    if (device->free.empty()) return nullptr;
    lease = new Lease{device, device->free.back()};
    device->free.pop_back();
  }
  Slot* const slot = lease->device->slots + lease->slot;
  cudaUserObject_t object;
  if (cudaUserObjectCreate(&object, lease, end_lease, 1, cudaUserObjectNoDestructorSync) !=
      cudaSuccess) {
    end_lease(lease);
    return nullptr;
  }
  if (cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove) == cudaSuccess)
    return slot;
  cudaUserObjectRelease(object, 1);
  return nullptr;
}

// The slot of a stream, by its number, not its handle: a handle may come back while work of its
// last owner still runs.
Slot* slot_of(cudaStream_t stream) {
  unsigned long long number;
  if (cudaStreamGetId(stream, &number) != cudaSuccess) return nullptr;
  const std::lock_guard<std::mutex> lock(registry().mutex);
  Device* const device = registry().current();
  if (!device || !device->slots) return nullptr;
  const auto known = device->of_stream.find(number);
  if (known != device->of_stream.end()) return device->slots + known->second;
  const int next = static_cast<int>(device->of_stream.size());
  if (next == kStreamSlots) return nullptr;
  device->of_stream.emplace(number, next);
  return device->slots + next;
}

cudaError_t capture_of(cudaStream_t stream, cudaStreamCaptureStatus* status, cudaGraph_t* graph) {
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, status, nullptr, graph, nullptr, nullptr, nullptr);
#else
  return cudaStreamGetCaptureInfo_v2(stream, status, nullptr, graph, nullptr, nullptr);
#endif
}

}  // namespace

Slot* find_slot(cudaStream_t stream) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph = nullptr;
  Slot* slot = nullptr;
  if (capture_of(stream, &status, &graph) == cudaSuccess) {
    if (status == cudaStreamCaptureStatusNone)
      slot = slot_of(stream);
    else if (status == cudaStreamCaptureStatusActive)
      slot = lease_slot(graph);
  }
  if (!slot) cudaGetLastError();  // what went wrong here is nobody else's error
  return slot;
}

bool launches_clusters() {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  const Device* const device = registry().current();
  return device && device->clusters;
}

}  // namespace losscli::cuda
