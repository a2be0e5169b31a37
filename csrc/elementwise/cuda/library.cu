// The library of one loss on CUDA. All of it is compiled with -DLOSSCLI_LOSS=smooth_l1 and
// -DLOSSCLI_LOSS_HEADER='"losses/elementwise/smooth_l1.h"', and the library of its reduction
// strategies with -DLOSSCLI_STRATEGIES as well:
//
//   dense.dtype.cu      once for each floating dtype, with -DLOSSCLI_DTYPE=float32 and so on: dense
//                       operands of that dtype
//   strided_float.cu    once: operands of any strides and dtypes, computed in float
//   strided_double.cu   once: the same in double
//   library.cu          once: this file, which chooses, and what is left
#include LOSSCLI_LOSS_HEADER

#include "elementwise/cuda/instance.h"
#include "elementwise/cuda/rows.h"
#include "elementwise/cuda/second_derivatives.cuh"
#include "elementwise/cuda/shared_gradient.cuh"
#include "elementwise/cuda/strategies.cuh"

namespace losscli::cuda {
namespace {

constexpr auto& kSignature = LOSSCLI_LOSS<double>::signature;
static_assert(kSignature.operands <= kMostOperands, "raise kMostOperands");
static_assert(kSignature.operands >= 2, "a loss has an input and a target");
static_assert(kSignature.parameter_total <= kMostParameters, "raise kMostParameters");

// Whether everything that a call reads is of the result's dtype, and upstream gradients lie dense.
bool is_of_one_dtype(const ElementwiseArguments& arguments, const Asked& asked) {
  const Operand& incoming = arguments.grad_output;
  bool is = !asked.incoming_tensor ||
            (incoming.dtype == arguments.dtype && is_dense(incoming, arguments.space));
  for (int n = 0; n < kSignature.operands; ++n)
    is &= arguments.operands[n].dtype == arguments.dtype;
  return is;
}

// Whether everything begins at a multiple of a pack.
bool is_aligned(const ElementwiseArguments& arguments, const Asked& asked) {
  bool is = arguments.reduce || aligned(arguments.value);
  for (int n = 0; n < kSignature.operands; ++n)
    is &= aligned(arguments.operands[n].data) && aligned(arguments.gradients[n]);
  return is && (!asked.incoming_tensor || aligned(arguments.grad_output.data));
}

Access access_of(const ElementwiseArguments& arguments, const Asked& asked) {
  const Space& space = arguments.space;
  const Rows rows = find_rows(arguments, kSignature.operands);
  if (rows.length >= 0 && is_of_one_dtype(arguments, asked)) {
    const int64_t row = rows.length, pack = kPackBytes / item_bytes(arguments.dtype);
    if (!asked.value && !asked.incoming_tensor && space.size > 0 && space.size <= kFewElements &&
        (row > 1 || row == space.size) && arguments.strategy == Strategy::single_pass &&
        arguments.guess == Guess::none)
      return Access::few;
    if (is_aligned(arguments, asked)) {
      if (!rows.operands) return Access::flat;
      if (row > 1 && row < kMostRow && row % pack == 0 && !asked.incoming_tensor)
        return Access::row;
    }
  }
  bool staged = asked.incoming_tensor && staged_dimension(arguments.grad_output, space) > 0;
  for (int n = 0; n < kSignature.operands; ++n)
    staged |= staged_dimension(arguments.operands[n], space) > 0;
  staged &= space.size > 0 && space.size < int64_t{1} << 31 &&
            (!asked.incoming_tensor || has_short_steps(arguments.grad_output, space));
  for (int n = 0; n < kSignature.operands; ++n)
    staged &= has_short_steps(arguments.operands[n], space);
  return staged ? Access::staged : Access::strided;
}

const Instance& instance_of(const ElementwiseArguments& arguments, Access access) {
  if (access == Access::strided || access == Access::staged)
    return arguments.dtype == DType::float64 ? strided_double : strided_float;
  // In the order of DType.
  const Instance* const dense[] = {&dense_float32, &dense_float64, &dense_float16, &dense_bfloat16};
  return *dense[static_cast<int>(arguments.dtype)];
}

// No kernel computes a loss together with gradients for a tensor of incoming ones: two do.
bool takes_two(const Asked& asked) { return (asked.sum || asked.value) && asked.incoming_tensor; }

ElementwiseArguments without_gradients(const ElementwiseArguments& arguments) {
  ElementwiseArguments alone = arguments;
  for (void*& gradient : alone.gradients) gradient = nullptr;
  alone.grad_output = {};
  return alone;
}

int64_t count_blocks(const ElementwiseArguments& arguments) {
  const Access access = access_of(arguments, Asked(arguments));
  return instance_of(arguments, access).blocks(arguments, access);
}

int64_t partial_sums(const ElementwiseArguments& arguments, const DeviceFacts&) {
  ElementwiseArguments with_value = arguments;
  // Any: one will be asked for. As allocators give it.
  with_value.value = reinterpret_cast<void*>(uintptr_t{256});
  return count_blocks(with_value);
}

Needs elementwise_needs(const ElementwiseArguments& arguments, const DeviceFacts& facts) {
  const Asked asked(arguments);
  if (!asked.sum) return {};
  if (takes_two(asked)) return elementwise_needs(without_gradients(arguments), facts);
  return sum_needs(arguments, count_blocks(arguments), facts);
}

Status elementwise(const ElementwiseArguments& arguments, const LaunchContext& context) {
  const Asked asked(arguments);
  if (takes_two(asked)) {
    const Status status = elementwise(without_gradients(arguments), context);
    ElementwiseArguments gradients = arguments;
    gradients.value = nullptr;
    return status.ok() ? elementwise(gradients, context) : status;
  }
  const bool guesses = arguments.guess != Guess::none;
  if (!asked.sum && !guesses && arguments.space.size == 0) return {};
  if (!asked.sum && !asked.value && !asked.gradient) return {};
  const Access access = access_of(arguments, asked);
  const Instance& instance = instance_of(arguments, access);
  if (!asked.sum) return instance.launch(arguments, access, GridSum(), context);

#ifndef LOSSCLI_STRATEGIES
  if (arguments.strategy != Strategy::single_pass)
    return Status::failure(StatusCode::failed, "this library knows no strategy but single_pass");
#endif
  const int64_t blocks = instance.blocks(arguments, access);
  if (context.clear_slot && sum_needs(arguments, blocks, context.device).slot) {
    const Status cleared = status_of(
        cudaMemsetAsync(context.slot, 0, kSlotBytes, static_cast<cudaStream_t>(context.stream)),
        "clearing the slot of a sum");
    if (!cleared.ok()) return cleared;
  }
  const Status status =
      instance.launch(arguments, access, sum_memory(arguments, blocks, context), context);
#ifdef LOSSCLI_STRATEGIES
  if (status.ok() &&
      (arguments.strategy == Strategy::two_pass || arguments.strategy == Strategy::tree))
    return arguments.dtype == DType::float64 ? add_sums<double>(arguments, context, blocks)
                                             : add_sums<float>(arguments, context, blocks);
#endif
  return status;
}

Status shared_gradient(const SharedGradientArguments& arguments, const LaunchContext& context) {
  return arguments.dtype == DType::float64
             ? launch_shared_gradient<LOSSCLI_LOSS<double>, double>(arguments, context)
             : launch_shared_gradient<LOSSCLI_LOSS<float>, float>(arguments, context);
}

Status second_derivatives(const SecondDerivativeArguments& arguments,
                          const LaunchContext& context) {
  return arguments.dtype == DType::float64
             ? launch_second_derivatives<LOSSCLI_LOSS<double>, double>(arguments, context)
             : launch_second_derivatives<LOSSCLI_LOSS<float>, float>(arguments, context);
}

const Kernels kernels{
    kInterface,
    kSignature.operands,
    kSignature.parameter_total,
    kSignature.parameters.data(),
    // Of fewer, one block computes the gradients as fast as it finds that there is nothing to do.
    kFewElements + 1,
    partial_sums,
    elementwise_needs,
    elementwise,
    shared_gradient_needs,
    shared_gradient,
    second_derivatives,
};

}  // namespace
}  // namespace losscli::cuda

LOSSCLI_EXPORT const losscli::Kernels* losscli_kernels() { return &losscli::cuda::kernels; }
