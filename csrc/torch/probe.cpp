// The operator `losscli_bench::memory_probe`: one of the kernels that only move bytes, on tensors.
#include "bench/probe.h"

#include <ATen/core/stack.h>
#include <torch/library.h>

#include <string>

#include "core/platform.h"
#include "torch/fresh.h"
#include "torch/launch.h"

namespace losscli {
namespace {

Attached<Probe> probes{};

const Probe& probe_for(const at::Device& device) {
  const Probe* const probe = probes.on(device);
  TORCH_CHECK(probe, "memory_probe: its kernels for ", device, " are not loaded");
  return *probe;
}

void check_tensor(const at::Tensor& tensor, const at::Tensor& like) {
  TORCH_CHECK(tensor.device() == like.device(), "memory_probe: all tensors must be on one device, ",
              "but are on ", like.device(), " and ", tensor.device());
  TORCH_CHECK(tensor.is_contiguous(), "memory_probe: tensors must be contiguous, but one of shape ",
              tensor.sizes(), " has strides ", tensor.strides());
  TORCH_CHECK(tensor.nbytes() == like.nbytes(), "memory_probe: all tensors must be of one size, ",
              "but have ", like.nbytes(), " and ", tensor.nbytes(), " bytes");
  TORCH_CHECK(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0,
              "memory_probe: tensors must begin at a multiple of 16 bytes");
}

void memory_probe(at::TensorList reads, at::TensorList writes, int64_t variant) {
  TORCH_CHECK(reads.size() <= kMostProbeReads && writes.size() <= kMostProbeWrites,
              "memory_probe: expected up to ", kMostProbeReads, " tensors to read and ",
              kMostProbeWrites, " to write, got ", reads.size(), " and ", writes.size());
  const at::Tensor& first = reads.empty() ? writes[0] : reads[0];
  const Probe& probe = probe_for(first.device());
  TORCH_CHECK_VALUE(variant >= 0 && variant < probe.variants, "memory_probe: variant must be 0 to ",
                    probe.variants - 1, ", but is ", variant);
  ProbeArguments arguments{};
  arguments.bytes = static_cast<int64_t>(first.nbytes());
  for (const at::Tensor& tensor : reads) {
    check_tensor(tensor, first);
    arguments.read[arguments.reads++] = tensor.const_data_ptr();
  }
  for (const at::Tensor& tensor : writes) {
    check_tensor(tensor, first);
    void* data = tensor.mutable_data_ptr();
    // As under what the losses allocate.
    if (tensor.is_cpu() && arguments.bytes >= kFreshBytes) advise_huge_pages(data, arguments.bytes);
    arguments.write[arguments.writes++] = data;
  }
  if (arguments.bytes == 0) return;

  const Launch on(first);
  const Status status = probe.run(arguments, static_cast<int>(variant), on.context);
  TORCH_CHECK(status.ok(), "memory_probe on ", first.device(), ": ", status.message);
}

// Boxed, as the losses are.
void memory_probe_kernel(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto arguments = stack->end() - 3;
  memory_probe(arguments[0].toTensorVector(), arguments[1].toTensorVector(), arguments[2].toInt());
  torch::jit::drop(*stack, 3);
}

int64_t memory_probe_variants(at::Device device) { return probe_for(device).variants; }

}  // namespace
}  // namespace losscli

TORCH_LIBRARY_FRAGMENT(losscli_bench, library) {
  library.def("memory_probe(Tensor[] reads, Tensor(a!)[] writes, int variant) -> ()");
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA})
    library.impl(
        "memory_probe",
        torch::dispatch(
            key, torch::CppFunction::makeFromBoxedFunction<&losscli::memory_probe_kernel>()));
  // There is nothing to differentiate, and nothing to warn about.
  library.impl("memory_probe",
               torch::dispatch(c10::DispatchKey::Autograd, torch::CppFunction::makeFallthrough()));
  library.def("memory_probe_variants(Device device) -> int", losscli::memory_probe_variants);
}

LOSSCLI_EXPORT const char* losscli_attach_probe(const char* device, const losscli::Probe* probe) {
  losscli::probes[std::string(device) == "cpu" ? 0 : 1] = probe;
  return nullptr;
}
