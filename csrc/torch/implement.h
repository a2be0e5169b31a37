// Registering kernels of one loss with the dispatcher, and what autocast does before any of them.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <deque>
#include <memory>
#include <string>

namespace losscli {

// With the last for meta tensors within transforms.
constexpr c10::DispatchKey kAutogradKeys[] = {
    c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA, c10::DispatchKey::AutogradMeta,
    c10::DispatchKey::AutogradOther};

// What is registered stays so: libraries are never destroyed.
inline torch::Library& implementations(const char* space) {
  static auto& libraries = *new std::deque<torch::Library>;
  return libraries.emplace_back(torch::Library::IMPL, space, std::nullopt, __FILE__, __LINE__);
}

template <typename Kernel, typename Loss>
void implement(torch::Library& library, const std::string& name, c10::DispatchKey key, Loss& loss) {
  library.impl(name.c_str(), torch::dispatch(key, torch::CppFunction::makeFromBoxedFunctor(
                                                      std::make_unique<Kernel>(loss))));
}

// As PyTorch does with its own losses: the first `operands` arguments are computed in float32
// whatever autocast's dtype is.
inline void call_in_float32(const c10::OperatorHandle& op, size_t operands, c10::DeviceType device,
                            torch::jit::Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard guard(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const auto first = stack.end() - op.schema().arguments().size();
  for (size_t k = 0; k < operands; ++k)
    if (!first[k].isNone())
      first[k] = at::autocast::cached_cast(at::kFloat, first[k].toTensor(), device);
  op.callBoxed(stack);
}

}  // namespace losscli
