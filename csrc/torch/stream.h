// The current stream of a device, as a kernel's launch takes it.
#pragma once

#include <c10/core/Device.h>

namespace losscli {

// CUDA: the cudaStream_t; null on a CPU.
void* current_stream(const c10::Device& device);

}  // namespace losscli
