// What is attached to the operators: the losses, their kernels on each device, what a device keeps
// for all of them.
#pragma once

#include <c10/core/Device.h>

#include <algorithm>
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

// A loss as its operators were defined: `losscli::NAME(Tensor..., str reduction, float..., ...)`.
// Never destroyed.
struct Definition {
  std::string name;
  std::vector<std::string> operand_names;
  std::vector<const char*> operand_words;  // the same, for messages
  std::vector<std::string> parameter_names;

  size_t operands() const { return operand_names.size(); }
  size_t parameters() const { return parameter_names.size(); }
};

// Null where none are attached yet.
template <typename Table>
using Attached = std::array<std::atomic<const Table*>, kDeviceKinds>;

// One loss of elements.
struct LossDefinition : Definition {
  Attached<Kernels> kernels{};
  Attached<Kernels> strategies{};  // with the strategies in a table of their own

  size_t gradients() const { return operands(); }  // operands that have one
};

// What an operand of a loss over rows is, as `roles` has it. Those that are rows come first, among
// them those whose gradient the kernels give. The gradients of the roles in capitals are composed
// of PyTorch's operators. Weights and masks may be left out.
constexpr char kRowRole = 'r';
constexpr char kComposedRowRole = 'R';
constexpr char kLabelRole = 'l';   // the number of a class for each row
constexpr char kTargetRole = 't';  // another number for each row
constexpr char kMaskRole = 'm';    // whether a row counts
constexpr char kWeightRole = 'w';  // a number for each class
constexpr char kComposedWeightRole = 'W';

// One loss over rows.
struct RowLossDefinition : Definition {
  std::string roles;              // of each operand
  bool second_dimension = false;  // rows lie along dimension 1, as classes do; else along the last
  bool wide = false;              // whether 16 bits give a loss in float32
  int doubling = -1;              // the parameter that asks for two values of a row; -1: none
  Attached<RowKernels> kernels{};

  bool is_row(size_t k) const { return roles[k] == kRowRole || roles[k] == kComposedRowRole; }
  bool is_weight(size_t k) const {
    return roles[k] == kWeightRole || roles[k] == kComposedWeightRole;
  }
  bool is_composed(size_t k) const {
    return roles[k] == kComposedRowRole || roles[k] == kComposedWeightRole;
  }
  // The dimension along which the rows of a tensor lie.
  int64_t row_dimension(int64_t dimensions) const {
    return second_dimension && dimensions > 1 ? 1 : dimensions - 1;
  }
  bool has_labels() const { return roles.find(kLabelRole) != std::string::npos; }
  size_t rows() const { return std::min(roles.find_first_not_of("rR"), roles.size()); }
  size_t gradients() const { return std::min(roles.find_first_not_of(kRowRole), roles.size()); }
};

// What a device keeps for all losses, or null where it needs nothing or none is attached.
const Runtime* runtime_for(const c10::Device& device);

}  // namespace losscli
