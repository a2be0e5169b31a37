// The device's runtime: slots for sums, expectations of upstream gradients, facts. Compiled once.
#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/cuda/launch.h"
#include "core/cuda/pool.h"
#include "core/runtime.h"

namespace losscli::cuda {
// Named: nvcc names kernels of an unnamed one after the folder of the build.
inline namespace runtime_kernels {

constexpr int kMostDevices = 64;

// Bounds on what one device may take. Beyond them, or where memory is short, there is none to be
// had: a caller does with memory that it clears, or without a guess.
constexpr size_t kStreamSlots = 256;     // 34 MiB
constexpr size_t kCapturedSlots = 4096;  // 550 MiB: a training step of thousands of losses
constexpr size_t kFirstSlab = 4, kLargestSlab = 64;
constexpr size_t kExpectationSlab = 1024;  // 32 KiB
constexpr size_t kMostExpectationSlabs = 64;
static_assert(sizeof(Expectation) == 32, "one each sector of the memory");

using StreamId = unsigned long long;

// Lets this thread allocate while a stream is being captured, by itself or by another.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    cudaGetLastError();  // what went wrong here is nobody else's error
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A cluster of the size and the blocks of the kernels' is asked for with it. It also tells which
// architecture the kernels were compiled for: all are for the same.
constexpr int kClusterThreads = 512;
__global__ void __launch_bounds__(kClusterThreads) cluster_kernel() {}

// Whether clusters can be launched: the attribute alone does not say so of a part of a GPU, which
// may not have the multiprocessors side by side.
bool launches_clusters(int device) {
  int supported = 0;
  cudaFuncAttributes compiled{};
  if (cudaDeviceGetAttribute(&supported, cudaDevAttrClusterLaunch, device) != cudaSuccess ||
      !supported || cudaFuncGetAttributes(&compiled, cluster_kernel) != cudaSuccess ||
      compiled.ptxVersion < 90)
    return false;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = kMostClusterBlocks;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kMostClusterBlocks);
  config.blockDim = dim3(kClusterThreads);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  return cudaOccupancyMaxActiveClusters(&clusters, cluster_kernel, &config) == cudaSuccess &&
         clusters > 0;
}

struct ExpectationSlab {
  char* first;
  int32_t* doubted;  // one each, in memory of the host that kernels write; null where there is none
};

// One device. Everything but the pools' free lists is used with the registry's lock held.
struct Device {
  bool asked = false;
  DeviceFacts facts;
  cudaStream_t own = nullptr;  // clears fresh memory: the caller's stream may be capturing

  std::vector<void*> fresh_slots;  // zero, not in use yet
  size_t stream_slots = 0;
  std::unordered_map<StreamId, void*> slot_of;
  Pool captured_slots;

  std::vector<void*> fresh_expectations;
  std::vector<ExpectationSlab> slabs;
  std::unordered_map<StreamId, std::vector<void*>> given_back;
  Pool captured_expectations;

  // Loads the module, which a stream that is being captured need not mind.
  void ask(int number) {
    if (asked) return;
    const RelaxedCapture relaxed;
    int count = 0;
    if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, number) == cudaSuccess)
      facts.multiprocessors = count;
    facts.clusters = launches_clusters(number);
    asked = count > 0;
  }

  // Zero bytes, once `prepare`, which may add work to `own`, has changed them; null where there are
  // none.
  template <typename Prepare>
  char* allocate(size_t bytes, Prepare prepare) {
    const RelaxedCapture relaxed;
    if (!own && cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) != cudaSuccess) {
      own = nullptr;
      return nullptr;
    }
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) return nullptr;
    const bool ready = cudaMemsetAsync(memory, 0, bytes, own) == cudaSuccess &&
                       prepare(static_cast<char*>(memory)) &&
                       cudaStreamSynchronize(own) == cudaSuccess;
    if (ready) return static_cast<char*>(memory);
    cudaFree(memory);
    return nullptr;
  }

  // Makes an expectation what it was at first; the one of a graph that is gone.
  bool reset(void* expectation) {
    const RelaxedCapture relaxed;
    const Expectation fresh;
    return cudaMemcpyAsync(expectation, &fresh, sizeof fresh, cudaMemcpyHostToDevice, own) ==
               cudaSuccess &&
           cudaStreamSynchronize(own) == cudaSuccess;
  }

  void* fresh_slot() {
    if (fresh_slots.empty()) {
      const size_t count =
          std::clamp(stream_slots + captured_slots.total, kFirstSlab, kLargestSlab);
      fresh_slots.reserve(count);
      char* const slab = allocate(count * kSlotBytes, [](char*) { return true; });
      if (!slab) return nullptr;
      for (size_t i = count; i-- > 0;) fresh_slots.push_back(slab + i * kSlotBytes);
    }
    void* const slot = fresh_slots.back();
    fresh_slots.pop_back();
    return slot;
  }

  bool add_expectations() {
    if (slabs.size() == kMostExpectationSlabs) return false;
    fresh_expectations.reserve(kExpectationSlab);
    slabs.reserve(slabs.size() + 1);
    ExpectationSlab slab{nullptr, nullptr};
    std::vector<Expectation> fresh(kExpectationSlab);
    {
      const RelaxedCapture relaxed;
      void* host = nullptr;
      if (cudaHostAlloc(&host, kExpectationSlab * sizeof(int32_t),
                        cudaHostAllocMapped | cudaHostAllocPortable) == cudaSuccess) {
        slab.doubted = static_cast<int32_t*>(host);
        std::fill_n(slab.doubted, kExpectationSlab, 0);
        for (size_t i = 0; i < kExpectationSlab; ++i) fresh[i].doubted = slab.doubted + i;
      }
    }
    slab.first = allocate(kExpectationSlab * sizeof(Expectation), [&](char* memory) {
      return cudaMemcpyAsync(memory, fresh.data(), kExpectationSlab * sizeof(Expectation),
                             cudaMemcpyHostToDevice, own) == cudaSuccess;
    });
    if (!slab.first) {
      if (slab.doubted) cudaFreeHost(slab.doubted);
      return false;
    }
    slabs.push_back(slab);
    for (size_t i = kExpectationSlab; i-- > 0;)
      fresh_expectations.push_back(slab.first + i * sizeof(Expectation));
    return true;
  }

  void* fresh_expectation() {
    if (fresh_expectations.empty() && !add_expectations()) return nullptr;
    void* const expectation = fresh_expectations.back();
    fresh_expectations.pop_back();
    return expectation;
  }
};

static_assert(kSlotBytes % alignof(Slot) == 0, "slots of a slab lie side by side");

struct Registry {
  std::mutex mutex;
  std::array<Device*, kMostDevices> devices{};
  // To whose stream an expectation in use is given back.
  std::unordered_map<void*, std::pair<Device*, StreamId>> owners;

  Device* current() {
    int number = 0;
    if (cudaGetDevice(&number) != cudaSuccess || number >= kMostDevices) return nullptr;
    Device*& device = devices[number];
    if (!device) device = new Device;
    device->ask(number);
    return device;
  }
};

// Never destroyed: graphs outlive static objects.
Registry& registry() {
  static Registry& one = *new Registry;
  return one;
}

struct Capture {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  unsigned long long id = 0;
};

bool find_capture(void* opaque, Capture& capture) {
  const auto stream = static_cast<cudaStream_t>(opaque);
#if CUDART_VERSION >= 13000
  return cudaStreamGetCaptureInfo(stream, &capture.status, &capture.id, &capture.graph, nullptr,
                                  nullptr, nullptr) == cudaSuccess;
#else
  return cudaStreamGetCaptureInfo_v2(stream, &capture.status, &capture.id, &capture.graph, nullptr,
                                     nullptr) == cudaSuccess;
#endif
}

// The number of a stream, not its handle: a handle may come back while work of its last owner still
// runs.
bool find_stream(void* stream, StreamId& id) {
  return cudaStreamGetId(static_cast<cudaStream_t>(stream), &id) == cudaSuccess;
}

// Runs `body`, whatever happens: null where it throws, and no error of CUDA is left behind where it
// found none.
template <typename Body>
void* guarded(Body body) noexcept {
  void* found = nullptr;
  try {
    found = body();
  } catch (...) {  // no memory
  }
  if (!found) cudaGetLastError();
  return found;
}

// Takes from a pool or `fresh`, and hands it to the graph.
template <typename Fresh>
void* lease_for(Pool& pool, size_t most, cudaGraph_t graph, Fresh fresh) {
  void* memory = take_free(pool);
  if (!memory) {
    if (pool.total >= most) return nullptr;
    {
      const std::lock_guard<std::mutex> lock(lease_mutex());
      pool.free.reserve(std::max(pool.free.capacity(), 2 * (pool.total + 1)));
    }
    memory = fresh();
    if (!memory) return nullptr;
    ++pool.total;
  }
  return lease(pool, memory, graph);
}

DeviceFacts facts() {
  DeviceFacts found;
  guarded([&]() -> void* {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    Device* const device = registry().current();
    if (device) found = device->facts;
    return device;
  });
  return found;
}

uint64_t capture_number(void* stream) {
  Capture capture;
  if (!find_capture(stream, capture)) {
    cudaGetLastError();
    return 0;
  }
  return capture.status == cudaStreamCaptureStatusNone ? 0 : capture.id;
}

void* find_slot(void* stream) {
  return guarded([&]() -> void* {
    Capture capture;
    if (!find_capture(stream, capture)) return nullptr;
    const std::lock_guard<std::mutex> lock(registry().mutex);
    Device* const device = registry().current();
    if (!device) return nullptr;
    if (capture.status == cudaStreamCaptureStatusActive)
      return lease_for(device->captured_slots, kCapturedSlots, capture.graph,
                       [&] { return device->fresh_slot(); });
    StreamId id;
    if (capture.status != cudaStreamCaptureStatusNone || !find_stream(stream, id)) return nullptr;
    const auto known = device->slot_of.find(id);
    if (known != device->slot_of.end()) return known->second;
    if (device->stream_slots == kStreamSlots) return nullptr;
    void* const slot = device->fresh_slot();
    if (!slot) return nullptr;
    try {
      device->slot_of.emplace(id, slot);
    } catch (...) {
      device->fresh_slots.push_back(slot);  // where it has just left a place
      throw;
    }
    ++device->stream_slots;
    return slot;
  });
}

Expectation* find_expectation(void* stream) {
  return static_cast<Expectation*>(guarded([&]() -> void* {
    Capture capture;
    if (!find_capture(stream, capture)) return nullptr;
    const std::lock_guard<std::mutex> lock(registry().mutex);
    Device* const device = registry().current();
    if (!device) return nullptr;
    if (capture.status == cudaStreamCaptureStatusActive) {
      Pool& pool = device->captured_expectations;
      void* const used = take_free(pool);
      if (!used)
        return lease_for(pool, kMostExpectationSlabs * kExpectationSlab, capture.graph,
                         [&] { return device->fresh_expectation(); });
      if (device->reset(used)) return lease(pool, used, capture.graph);
      const std::lock_guard<std::mutex> leases(lease_mutex());
      pool.free.push_back(used);
      return nullptr;
    }
    StreamId id;
    if (capture.status != cudaStreamCaptureStatusNone || !find_stream(stream, id)) return nullptr;
    auto& free = device->given_back[id];
    // Work on the stream is in order, so that one given back there may serve its next call.
    void* expectation = nullptr;
    if (!free.empty()) {
      expectation = free.back();
    } else {
      expectation = device->fresh_expectation();
      if (!expectation) return nullptr;
      free.push_back(expectation);  // makes the place that it is given back to
    }
    registry().owners.insert_or_assign(expectation, std::pair<Device*, StreamId>(device, id));
    free.pop_back();
    return expectation;
  }));
}

void give_back(Expectation* expectation) {
  guarded([&]() -> void* {
    if (!expectation) return nullptr;
    const std::lock_guard<std::mutex> lock(registry().mutex);
    const auto owner = registry().owners.find(expectation);
    if (owner == registry().owners.end()) return nullptr;  // a graph's, or given back before
    const auto [device, id] = owner->second;
    device->given_back[id].push_back(expectation);
    registry().owners.erase(owner);
    return expectation;
  });
}

const volatile int32_t* doubted(const Expectation* expectation) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  const auto* const at = reinterpret_cast<const char*>(expectation);
  for (const Device* device : registry().devices) {
    if (!device) continue;
    for (const ExpectationSlab& slab : device->slabs) {
      const auto index = static_cast<size_t>(at - slab.first) / sizeof(Expectation);
      if (at >= slab.first && index < kExpectationSlab)
        return slab.doubted ? slab.doubted + index : nullptr;
    }
  }
  return nullptr;
}

Status forget(Expectation* expectation, void* stream) {
  return status_of(cudaMemsetAsync(&expectation->written, 0xff, sizeof expectation->written,
                                   static_cast<cudaStream_t>(stream)),
                   "forgetting the gradients that were written ahead");
}

const Runtime runtime{
    kInterface, facts, capture_number, find_slot, find_expectation, give_back, doubted, forget,
};

}  // namespace runtime_kernels
}  // namespace losscli::cuda

LOSSCLI_EXPORT const losscli::Runtime* losscli_runtime() { return &losscli::cuda::runtime; }
