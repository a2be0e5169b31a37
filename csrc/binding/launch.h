// What a launch needs of PyTorch: the device, its current stream or its threads, scratch memory.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "elementwise.h"

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
      const c10::impl::VirtualGuardImpl device(like.device().type());
      context.stream = device.getStream(like.device()).native_handle();
    }
  }

  void reserve(size_t bytes) {
    if (bytes == 0) return;
    workspace_ = at::empty({static_cast<int64_t>(bytes)}, options_.dtype(at::kByte));
    context.workspace = workspace_.mutable_data_ptr();
  }

  LaunchContext context;

 private:
  c10::DeviceGuard guard_;
  at::TensorOptions options_;
  at::Tensor workspace_;
};

}  // namespace losscli
