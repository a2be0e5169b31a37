// How a call's sum is combined, and the memory that it takes; what the strategies launch behind it.
#pragma once

#include "core/cuda/launch.h"
#include "elementwise/cuda/any_dtype.cuh"
#include "elementwise/cuda/pass.h"
#include "reduce/cuda/grid_sum.cuh"

namespace losscli::cuda {

inline int sum_words(DType dtype) {
  return dtype == DType::float64 ? SumOf<double>::kWords : SumOf<float>::kWords;
}

inline Combine combine_of(Strategy strategy, int64_t blocks, const DeviceFacts& facts) {
  if (strategy == Strategy::single_pass) return combine_blocks(blocks, facts);
  if (strategy == Strategy::atomic) return blocks == 1 ? Combine::alone : Combine::atomic;
  return Combine::partial;
}

inline Needs sum_needs(const ElementwiseArguments& arguments, int64_t blocks,
                       const DeviceFacts& facts) {
  const int words = sum_words(arguments.dtype);
  Needs needs = combine_needs(combine_of(arguments.strategy, blocks, facts), blocks, words);
  if (arguments.strategy == Strategy::two_pass) needs.workspace = blocks * words * sizeof(double);
  if (arguments.strategy == Strategy::tree) {
    int64_t sums = 0;
    for (int64_t count = blocks; count > 1; count = divide_up(count, kGroup)) sums += count;
    needs.workspace = (sums + 1) * words * sizeof(double);
  }
  return needs;
}

inline GridSum sum_memory(const ElementwiseArguments& arguments, int64_t blocks,
                          const LaunchContext& context) {
  GridSum memory = grid_sum_memory(combine_of(arguments.strategy, blocks, context.device), blocks,
                                   sum_words(arguments.dtype), context);
  if (arguments.strategy == Strategy::torch_sum) {
    memory.blocks = static_cast<double*>(arguments.value);
    memory.rounded = true;
  }
  return memory;
}

#ifdef LOSSCLI_STRATEGIES
// Adds up `count` sums, or `each` of them a block; the last level writes the scaled value.
template <typename Real>
__global__ void __launch_bounds__(kGroup)
    add_sums_kernel(const double* sums, int64_t count, int64_t each, double* out,
                    const Scaling scaling, void* value, DType dtype) {
  using Sum = SumOf<Real>;
  __shared__ Scratch<Sum> scratch;
  const int64_t first = blockIdx.x * each;
  const Sum sum =
      sum_of<Sum, kGroup>(sums + first * Sum::kWords, min(each, count - first), scratch);
  if (threadIdx.x != 0) return;
  if (gridDim.x > 1) {
    put_sum(out, blockIdx.x, sum);
  } else {
    write_number(value, dtype, static_cast<Real>(sum.scaled(scaling)));
  }
}

// Adds up what the blocks have left: all at once, or a group a block until one sum is left.
template <typename Real>
Status add_sums(const ElementwiseArguments& arguments, const LaunchContext& context,
                int64_t blocks) {
  auto* sums = static_cast<double*>(context.workspace);
  const Scaling scaling(arguments.scale, arguments.space.size);
  const int64_t each = arguments.strategy == Strategy::two_pass ? blocks : kGroup;
  for (int64_t count = blocks;;) {
    const int64_t left = divide_up(count, each);
    double* const out = sums + count * SumOf<Real>::kWords;
    const Status status =
        launch("add_sums_kernel", add_sums_kernel<Real>, dim3(static_cast<unsigned>(left)), kGroup,
               false, context.stream, static_cast<const double*>(sums), count, each, out, scaling,
               arguments.value, arguments.dtype);
    if (!status.ok() || left == 1) return status;
    sums = out;
    count = left;
  }
}
#endif

}  // namespace losscli::cuda
