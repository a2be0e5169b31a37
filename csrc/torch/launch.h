// What a launch needs of PyTorch: the device, its current stream or its threads, memory.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "core/launch.h"
#include "core/runtime.h"
#include "torch/call.h"
#include "torch/registry.h"

namespace losscli {

// The kernels in a table of a loss by devices; throws (RuntimeError) where they are not loaded.
template <typename Table>
const auto& kernels_in(const Table& table, const std::string& loss, const at::Device& device) {
  const auto* const kernels = table.on(device);
  TORCH_CHECK(kernels, loss, ": its kernels for ", device, " are not loaded; call it through ",
              "losscli.functional, or run `losscli build` to see why they cannot be built");
  return *kernels;
}

// The current stream of a device, as a kernel's launch takes it: the cudaStream_t; null on a CPU.
void* current_stream(const c10::Device& device);

// Throws what a launch reports that failed, with the loss, the operands and the device.
void check_status(const Status& status, const Call& call, TensorList operands);

class Launch {
 public:
  explicit Launch(const at::Tensor& like) : guard_(like.device()), options_(like.options()) {
    if (like.is_cpu()) {
      context.parallel = [](int64_t count, void (*body)(void*, int64_t, int64_t), void* opaque) {
        at::parallel_for(0, count, 1,
                         [&](int64_t first, int64_t last) { body(opaque, first, last); });
      };
    } else {
      context.stream = current_stream(like.device());
      if (const Runtime* runtime = runtime_for(like.device())) context.device = runtime->facts();
    }
  }

  // Memory from PyTorch's allocator: in a capture it belongs to the graph, and where there is none
  // left, PyTorch's own error says so. Where no slot is to be had, one is made of it.
  void reserve(const at::Device& device, const Needs& needs) {
    size_t bytes = (needs.workspace + 15) / 16 * 16;
    if (needs.slot) {
      const Runtime* runtime = runtime_for(device);
      context.slot = runtime ? runtime->slot(context.stream) : nullptr;
    }
    const bool own_slot = needs.slot && !context.slot;
    if (bytes == 0 && !own_slot) return;
    workspace_ = at::empty({static_cast<int64_t>(bytes + (own_slot ? kSlotBytes : 0))},
                           options_.dtype(at::kByte));
    auto* const data = static_cast<char*>(workspace_.mutable_data_ptr());
    context.workspace = data;
    if (own_slot) {
      context.slot = data + bytes;
      context.clear_slot = true;
    }
  }

  LaunchContext context;

 private:
  c10::DeviceGuard guard_;
  at::TensorOptions options_;
  at::Tensor workspace_;
};

// Launches on the device of a tensor, with the memory that is needed.
template <typename Arguments>
Status launch(const at::Tensor& like, Needs (*needs)(const Arguments&, const DeviceFacts&),
              Status (*run)(const Arguments&, const LaunchContext&), const Arguments& arguments) {
  Launch on(like);
  on.reserve(like.device(), needs(arguments, on.context.device));
  return run(arguments, on.context);
}

}  // namespace losscli
