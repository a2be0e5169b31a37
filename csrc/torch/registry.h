// What is attached for each device: kernels, and what a device keeps for all losses.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>

#include "core/runtime.h"

namespace losscli {

// Devices that kernels can be attached for.
enum class DeviceKind : int { cpu, cuda };
constexpr int kDeviceKinds = 2;

inline DeviceKind kind_of(const c10::Device& device) {
  return device.is_cpu() ? DeviceKind::cpu : DeviceKind::cuda;
}

// Null where none are attached yet.
template <typename Table>
struct Attached : std::array<std::atomic<const Table*>, kDeviceKinds> {
  const Table* on(const c10::Device& device) const {
    return (*this)[static_cast<size_t>(kind_of(device))].load();
  }
};

// What a device keeps for all losses, or null where it needs nothing or none is attached.
const Runtime* runtime_for(const c10::Device& device);

}  // namespace losscli
