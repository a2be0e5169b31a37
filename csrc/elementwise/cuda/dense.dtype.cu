// The kernels of the one loss and dtype that LOSSCLI_LOSS and LOSSCLI_DTYPE name.
#include <type_traits>

#include "double_backward.cuh"
#include "loss_kernel.cuh"
#include "shared_gradient.cuh"

namespace losscli::cuda {
namespace {

using Stored = StoredAs<DType::LOSSCLI_DTYPE>::Type;

int64_t loss_blocks(const LossArguments& asked) {
  LossArguments arguments = asked;
  arguments.value = &arguments;  // any: a value will be asked for
  return with_pass<Stored>(
      arguments, [&](auto pass) { return block_count<Stored, decltype(pass)>(arguments); });
}

size_t loss_workspace(const LossArguments& arguments) {
  return with_pass<Stored>(arguments, [&](auto pass) -> size_t {
    using Pass = decltype(pass);
    if constexpr (!Pass::sum) return 0;
    return workspace_sums(arguments.strategy, block_count<Stored, Pass>(arguments)) *
           sizeof(double);
  });
}

void loss(const LossArguments& arguments, const LaunchContext& context) {
  with_pass<Stored>(arguments, [&](auto pass) {
    launch_loss<LOSSCLI_LOSS, Stored, decltype(pass)>(arguments, context);
  });
}

constexpr auto double_backward() -> void (*)(const DoubleBackwardArguments&, const LaunchContext&) {
  if constexpr (std::is_same_v<Stored, RealOf<Stored>>) {
    return launch_double_backward<LOSSCLI_LOSS, Stored>;
  } else {
    return nullptr;
  }
}

#define LOSSCLI_JOIN_(a, b) a##_##b
#define LOSSCLI_JOIN(a, b) LOSSCLI_JOIN_(a, b)

}  // namespace

// The part of the engine that is this loss in this dtype; without the double backward in 16 bits,
// which is computed in float32.
extern const Engine LOSSCLI_JOIN(LOSSCLI_LOSS, LOSSCLI_DTYPE);
const Engine LOSSCLI_JOIN(LOSSCLI_LOSS, LOSSCLI_DTYPE){
    loss_blocks,
    loss_workspace,
    loss,
    shared_gradient_bytes,
    launch_shared_gradient<LOSSCLI_LOSS, Stored>,
    double_backward(),
};

}  // namespace losscli::cuda
