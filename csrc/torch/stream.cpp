#include "torch/stream.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

namespace losscli {
namespace {

// From torch 2.11 on a stream of any device tells its handle.
template <typename Stream>
auto handle_of(const Stream& stream, int) -> decltype(stream.native_handle()) {
  return stream.native_handle();
}

// Before, PyTorch's library for CUDA does, which is loaded where there is such a stream.
template <typename Stream>
void* handle_of(const Stream& stream, long) {
  using CurrentStream = int32_t (*)(int32_t index, void** stream);
  static const auto current = [] {
    void* const library = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
    void* const found = library ? dlsym(library, "aoti_torch_get_current_cuda_stream") : nullptr;
    return reinterpret_cast<CurrentStream>(found);
  }();
  void* handle = nullptr;
  TORCH_CHECK(current && current(stream.device_index(), &handle) == 0,
              "cannot find the current stream of ", stream.device(), " in this version of PyTorch");
  return handle;
}

}  // namespace

void* current_stream(const c10::Device& device) {
  if (device.is_cpu()) return nullptr;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return handle_of(guard.getStream(device), 0);
}

}  // namespace losscli
