// The entry points of CUDA: the instance for each loss and dtype, from the list.
#include "elementwise.h"

namespace losscli::cuda {

#define LOSSCLI_DECLARE(loss)         \
  extern const Engine loss##_float32; \
  extern const Engine loss##_float64; \
  extern const Engine loss##_float16; \
  extern const Engine loss##_bfloat16;
LOSSCLI_FOR_EACH_LOSS(LOSSCLI_DECLARE)
#undef LOSSCLI_DECLARE

namespace {

template <typename Arguments>
const Engine& instance(const Arguments& arguments) {
  // In the order of LossId and DType.
  static const Engine* const table[][4] = {
#define LOSSCLI_ENTRY(loss) {&loss##_float32, &loss##_float64, &loss##_float16, &loss##_bfloat16},
      LOSSCLI_FOR_EACH_LOSS(LOSSCLI_ENTRY)
#undef LOSSCLI_ENTRY
  };
  return *table[static_cast<int>(arguments.loss)][static_cast<int>(arguments.dtype)];
}

const Engine engine{
    [](const LossArguments& arguments) { return instance(arguments).block_count(arguments); },
    [](const LossArguments& arguments) { return instance(arguments).loss_workspace(arguments); },
    [](const LossArguments& arguments, const LaunchContext& context) {
      instance(arguments).loss(arguments, context);
    },
    [](const SharedGradientArguments& arguments) {
      return instance(arguments).shared_gradient_workspace(arguments);
    },
    [](const SharedGradientArguments& arguments, const LaunchContext& context) {
      instance(arguments).shared_gradient(arguments, context);
    },
    [](const DoubleBackwardArguments& arguments, const LaunchContext& context) {
      instance(arguments).double_backward(arguments, context);
    },
};

}  // namespace
}  // namespace losscli::cuda

extern "C" const losscli::Engine* losscli_cuda_engine() { return &losscli::cuda::engine; }
