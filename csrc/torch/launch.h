// What a launch needs of PyTorch: the device, its current stream or its threads, memory.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include "core/launch.h"
#include "core/runtime.h"
#include "torch/registry.h"
#include "torch/stream.h"

namespace losscli {

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

}  // namespace losscli
