#include "torch/launch.h"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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

void check_status(const Status& status, const Call& call, TensorList operands) {
  if (status.ok()) return;
  std::string text = call.name();
  for (size_t k = 0; k < operands.size(); ++k)
    if (operands[k].defined())
      text += c10::str(k == 0 ? " of " : ", ", call.loss->operand_names[k], " ",
                       operands[k].sizes(), " in ", operands[k].scalar_type());
  text += c10::str(" on ", operands[0].device(), ": ", status.message);
  if (status.code == StatusCode::out_of_memory) TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  TORCH_CHECK(status.code != StatusCode::failed_earlier,
              "an error of work that was launched earlier was found by ", text);
  TORCH_CHECK(false, text);
}

}  // namespace losscli
