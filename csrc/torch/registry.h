// What is attached to the operators: the losses, their kernels on each device, what a device keeps
// for all of them.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "elementwise/kernels.h"
#include "rows/kernels.h"

namespace losscli {

enum class Reduction { none, mean, sum };

// Devices that kernels can be attached for.
enum class DeviceKind : int { cpu, cuda };
constexpr int kDeviceKinds = 2;

inline DeviceKind kind_of(const c10::Device& device) {
  return device.is_cpu() ? DeviceKind::cpu : DeviceKind::cuda;
}

// One loss as its operators were defined: `losscli::NAME(Tensor..., str reduction, float..., ...)`.
// Never destroyed.
struct LossDefinition {
  std::string name;
  std::vector<std::string> operand_names;
  std::vector<const char*> operand_words;  // the same, for messages
  std::vector<std::string> parameter_names;
  // Null where none are attached yet. With the strategies in a table of their own.
  std::array<std::atomic<const Kernels*>, kDeviceKinds> kernels{};
  std::array<std::atomic<const Kernels*>, kDeviceKinds> strategies{};

  size_t operands() const { return operand_names.size(); }
  size_t parameters() const { return parameter_names.size(); }
};

// One loss over rows. Never destroyed.
struct RowLossDefinition {
  std::string name;
  std::array<std::atomic<const RowKernels*>, kDeviceKinds> kernels{};  // null: not attached yet
};

// What an operand of a functor over rows is, as `roles` has it.
constexpr char kRowRole = 'r';     // rows, which have a gradient
constexpr char kLabelRole = 'l';   // the number of a class for each row
constexpr char kTargetRole = 't';  // another number for each row
constexpr char kMaskRole = 'm';    // whether a row counts; may be left out
constexpr char kWeightRole = 'w';  // a number for each class; may be left out

// One functor over rows as its operators were defined: `losscli::NAME(Tensor..., str reduction,
// float..., ...)`. Never destroyed.
struct FunctorLoss {
  std::string name;
  std::string roles;              // of each operand
  bool second_dimension = false;  // rows lie along dimension 1, as classes do; else along the last
  bool wide = false;              // whether 16 bits give a loss in float32
  int doubling = -1;              // the parameter that asks for two values of a row; -1: none
  std::vector<std::string> operand_names;
  std::vector<const char*> operand_words;  // the same, for messages
  std::vector<std::string> parameter_names;
  std::array<std::atomic<const RowKernels*>, kDeviceKinds> kernels{};  // null: not attached yet

  size_t operands() const { return operand_names.size(); }
  size_t parameters() const { return parameter_names.size(); }
  size_t rows() const {
    const size_t others = roles.find_first_not_of(kRowRole);
    return others == std::string::npos ? roles.size() : others;
  }
};

// What a device keeps for all losses, or null where it needs nothing or none is attached.
const Runtime* runtime_for(const c10::Device& device);

}  // namespace losscli
