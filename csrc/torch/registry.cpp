#include "torch/registry.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <deque>
#include <exception>
#include <mutex>

#include "core/platform.h"
#include "torch/compute.h"
#include "torch/rows.h"

namespace losscli {

void implement_loss(const LossDefinition& loss);
void implement_kernels(const LossDefinition& loss, DeviceKind device, bool strategies);
void implement_loss(const RowLossDefinition& loss);
void implement_kernels(const RowLossDefinition& loss, DeviceKind device);

namespace {

std::atomic<const Runtime*> cuda_runtime{nullptr};

std::mutex mutex;  // of attaching

// Never destroyed.
template <typename Loss>
std::deque<Loss>& all() {
  static auto& losses = *new std::deque<Loss>;
  return losses;
}

template <typename Loss>
Loss* find(const std::string& name) {
  for (Loss& loss : all<Loss>())
    if (loss.name == name) return &loss;
  return nullptr;
}

// A loss with the names of operands and parameters that its operator's definition has.
template <typename Loss>
Loss& read_names(const std::string& name) {
  const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow(("losscli::" + name).c_str(), "");
  Loss& loss = all<Loss>().emplace_back();
  loss.name = name;
  bool operands = true;
  for (const c10::Argument& argument : handle.schema().arguments()) {
    if (argument.name() == "reduction")
      operands = false;
    else if (operands)
      loss.operand_names.push_back(argument.name());
    else if (argument.name() != "site")
      loss.parameter_names.push_back(argument.name());
  }
  return loss;
}

LossDefinition& define(const std::string& name) {
  auto& loss = read_names<LossDefinition>(name);
  loss.gradients = loss.operands();
  TORCH_CHECK(loss.operands() <= kMostOperands && loss.parameters() <= kMostParameters, name,
              " has more operands or parameters than the kernels take: raise kMostOperands or "
              "kMostParameters");
  return loss;
}

RowLossDefinition& define_rows(const std::string& name, const std::string& roles,
                               const std::string& doubling, bool second_dimension, bool wide) {
  auto& loss = read_names<RowLossDefinition>(name);
  loss.roles = roles;
  loss.rows = std::min(roles.find_first_not_of("rR"), roles.size());
  loss.gradients = std::min(roles.find_first_not_of(kRowRole), roles.size());
  loss.has_labels = roles.find(kLabelRole) != std::string::npos;
  loss.composes = true;
  for (size_t k = 0; k < roles.size(); ++k)
    if (roles[k] == kComposedRowRole || roles[k] == kComposedWeightRole) loss.composed.push_back(k);
  loss.second_dimension = second_dimension;
  loss.wide = wide;
  for (size_t p = 0; p < loss.parameters(); ++p)
    if (loss.parameter_names[p] == doubling) loss.doubling = static_cast<int>(p);
  TORCH_CHECK(roles.size() == loss.operands() && loss.rows <= kMostRows &&
                  loss.parameters() <= kMostRowParameters,
              name, " has other operands or more parameters than the kernels of rows take");
  TORCH_CHECK(roles.find_first_of("rR", loss.rows) == std::string::npos &&
                  roles.find(kRowRole, loss.gradients) == std::string::npos,
              name, ": operands that are rows come first, those with a gradient before the others");
  return loss;
}

void check_interface(const std::string& library, uint64_t interface) {
  TORCH_CHECK(interface == kInterface, library,
              ": the kernels are of another version of losscli; run `losscli build --force`");
}

void check_signature(const LossDefinition& loss, const Kernels& kernels) {
  check_interface(loss.name, kernels.interface);
  bool same = kernels.operands == static_cast<int32_t>(loss.operands()) &&
              kernels.parameters == static_cast<int32_t>(loss.parameters());
  for (size_t p = 0; same && p < loss.parameters(); ++p)
    same = loss.parameter_names[p] == kernels.parameter[p].name;
  TORCH_CHECK(same, loss.name, ": the signature in csrc/losses/elementwise/", loss.name,
              ".h has other operands or parameters than losscli/losses/elementwise/", loss.name,
              ".py");
}

DeviceKind device_kind(const std::string& device) {
  TORCH_CHECK(device == "cpu" || device == "cuda", "expected the device cpu or cuda, got ", device);
  return device == "cpu" ? DeviceKind::cpu : DeviceKind::cuda;
}

// Runs what an entry point does; null, or the message of what it threw.
template <typename Body>
const char* guarded(Body body) {
  thread_local std::string message;
  try {
    const std::lock_guard<std::mutex> lock(mutex);
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message.c_str();
}

}  // namespace

const Runtime* runtime_for(const c10::Device& device) {
  return device.is_cpu() ? nullptr : cuda_runtime.load();
}

}  // namespace losscli

// Called by losscli/operators/loading.py; each returns null, or what went wrong, until the thread's
// next call.

LOSSCLI_EXPORT const char* losscli_attach_loss(const char* name) {
  using namespace losscli;
  return guarded([&] {
    if (!find<LossDefinition>(name)) implement_loss(define(name));
  });
}

LOSSCLI_EXPORT const char* losscli_attach_kernels(const char* name, const char* device,
                                                  int strategies, const losscli::Kernels* kernels) {
  using namespace losscli;
  return guarded([&] {
    auto* const loss = find<LossDefinition>(name);
    TORCH_CHECK(loss, "there is no loss ", name, " to attach kernels to");
    check_signature(*loss, *kernels);
    const DeviceKind kind = device_kind(device);
    auto& place = (strategies ? loss->strategies : loss->kernels)[static_cast<int>(kind)];
    if (place.exchange(kernels)) return;
    implement_kernels(*loss, kind, strategies != 0);
  });
}

LOSSCLI_EXPORT const char* losscli_attach_row_loss(const char* name, const char* roles,
                                                   const char* doubling, int second_dimension,
                                                   int wide) {
  using namespace losscli;
  return guarded([&] {
    if (find<RowLossDefinition>(name)) return;
    implement_loss(define_rows(name, roles, doubling, second_dimension != 0, wide != 0));
  });
}

LOSSCLI_EXPORT const char* losscli_attach_row_kernels(const char* name, const char* device,
                                                      const losscli::RowKernels* kernels) {
  using namespace losscli;
  return guarded([&] {
    auto* const loss = find<RowLossDefinition>(name);
    TORCH_CHECK(loss, "there is no loss over rows ", name, " to attach kernels to");
    check_interface(loss->name, kernels->interface);
    TORCH_CHECK(kernels->rows == static_cast<int32_t>(loss->rows) &&
                    kernels->parameters == static_cast<int32_t>(loss->parameters()),
                name, ": its header in csrc/losses/rows has other operands or parameters than its ",
                "file in losscli/losses/rows");
    const DeviceKind kind = device_kind(device);
    if (loss->kernels[static_cast<size_t>(kind)].exchange(kernels)) return;
    implement_kernels(*loss, kind);
  });
}

LOSSCLI_EXPORT const char* losscli_attach_runtime(const char* device,
                                                  const losscli::Runtime* runtime) {
  using namespace losscli;
  return guarded([&] {
    TORCH_CHECK(device_kind(device) == DeviceKind::cuda, "the CPU has no runtime");
    check_interface("runtime_cuda", runtime->interface);
    cuda_runtime = runtime;
  });
}
