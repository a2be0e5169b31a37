// The gradient of an operand that several elements of the loss share: a sum for each of its
// elements, in double (in twice its digits where the loss is computed in double).
//
// A block is a rectangle of threads: so many elements of the operand side by side, and so many
// threads that share the summands of each. Where the fastest dimension is the operand's own,
// neighbouring threads take neighbouring elements, else neighbouring summands.
#pragma once

#include <algorithm>

#include "elementwise/cuda/division.h"
#include "elementwise/cuda/policies.h"
#include "elementwise/cuda/strategies.cuh"
#include "elementwise/kernels.h"

namespace losscli::cuda {

// How the sums are divided among threads and blocks.
struct SharedPolicy {
  int64_t elements = 1;
  int64_t summands = 1;  // of each
  int width = 1;         // elements of a block
  int64_t blocks = 1;    // along the elements
  int64_t bands = 1;     // blocks that share an element's summands; a second kernel adds their sums
};

inline SharedPolicy shared_policy(const SharedGradientArguments& arguments) {
  SharedPolicy policy;
  for (int d = 0; d < arguments.space.dimensions; ++d)
    (d < arguments.kept ? policy.elements : policy.summands) *= arguments.space.sizes[d];
  const bool columns = !arguments.repeats_fastest;
  // A thread an element where there are few summands; else threads that share them: 8 warps where
  // 32 elements lie side by side, a warp or a block where one element's summands do.
  int64_t width = kSharedThreads;
  if (policy.summands > kFewSummands)
    width = columns ? kWarp : policy.summands <= 32 * kFewSummands ? kSharedThreads / kWarp : 1;
  while (width > 1 && width / 2 >= policy.elements) width /= 2;
  policy.width = static_cast<int>(width);
  policy.blocks = std::max<int64_t>(divide_up(policy.elements, width), 1);
  const int64_t most = divide_up(policy.summands, 4 * (kSharedThreads / width));
  policy.bands = std::clamp<int64_t>(kSharedBlocks / policy.blocks, 1, std::max<int64_t>(most, 1));
  return policy;
}

inline Needs shared_gradient_needs(const SharedGradientArguments& arguments, const DeviceFacts&) {
  const SharedPolicy policy = shared_policy(arguments);
  const int64_t sums = policy.bands == 1 ? 0 : policy.bands * policy.elements;
  Needs needs;
  needs.workspace = sums * sum_words(arguments.dtype) * sizeof(double);
  return needs;
}

// The operands and grad_output, which is read as one more.
template <int operand_count>
struct SharedArguments {
  SharedPolicy policy;
  bool columns;
  bool has_incoming;
  int32_t kept, dimensions, shared;
  DType gradient_dtype;
  void* gradient;
  double* sums;
  double scale;
  Divisor sizes[kMostDimensions];
  const char* data[operand_count + 1];
  DType dtypes[operand_count + 1];
  int64_t strides[kMostDimensions][operand_count + 1];  // in bytes

  SharedArguments(const SharedGradientArguments& arguments, void* workspace)
      : policy(shared_policy(arguments)),
        columns(!arguments.repeats_fastest),
        has_incoming(arguments.grad_output.data != nullptr),
        kept(arguments.kept),
        dimensions(arguments.space.dimensions),
        shared(arguments.shared),
        gradient_dtype(arguments.operands[arguments.shared].dtype),
        gradient(arguments.gradient),
        sums(static_cast<double*>(workspace)),
        scale(policy.summands ? arguments.scale : 0) {  // of nothing, 0 whatever the scale
    for (int d = 0; d < dimensions; ++d) sizes[d] = Divisor(arguments.space.sizes[d]);
    for (int k = 0; k <= operand_count; ++k) {
      const Operand& from = k < operand_count ? arguments.operands[k] : arguments.grad_output;
      data[k] = static_cast<const char*>(from.data);
      dtypes[k] = from.dtype;
      for (int d = 0; d < dimensions; ++d) strides[d][k] = from.strides[d] * item_bytes(from.dtype);
    }
  }
};

// Summands that a thread reads at a time.
constexpr int kSummandsAtOnce = 4;

// Adds the offset of the `index`-th place of dimensions `first` to `last` for each operand.
template <int operand_count>
__device__ __forceinline__ void add_offsets(const SharedArguments<operand_count>& arguments,
                                            int first, int last, int64_t index,
                                            int64_t (&offsets)[operand_count + 1]) {
#pragma unroll 1
  for (int d = first; d < last; ++d) {
    const int64_t next = d + 1 < last ? arguments.sizes[d].divide(index) : 0;
    const int64_t at = index - next * arguments.sizes[d].value;
    index = next;
#pragma unroll
    for (int k = 0; k <= operand_count; ++k) offsets[k] += at * arguments.strides[d][k];
  }
}

template <typename Real, typename Arguments, typename Sum>
__device__ __forceinline__ void put_shared(const Arguments& arguments, int64_t element,
                                           const Sum& sum) {
  write_number(
      static_cast<char*>(arguments.gradient) + element * item_bytes(arguments.gradient_dtype),
      arguments.gradient_dtype, static_cast<Real>(sum.rounded() * arguments.scale));
}

template <typename Loss, typename Real>
__global__ void __launch_bounds__(kSharedThreads)
    shared_gradient_kernel(const Loss loss,
                           const SharedArguments<Loss::signature.operands> arguments) {
  constexpr int kOperands = Loss::signature.operands;
  using Sum = SumOf<Real>;
  __shared__ Scratch<Sum, kSharedThreads> scratch;
  const int width = arguments.policy.width, height = kSharedThreads / width;
  const int thread = threadIdx.x;  // width and height are powers of two
  const int column = arguments.columns ? thread & (width - 1) : thread / height;
  const int row = arguments.columns ? thread / width : thread & (height - 1);
  const int64_t element = int64_t{blockIdx.x} * width + column;
  const bool is_there = element < arguments.policy.elements;
  Sum sum;
  if (is_there) {
    int64_t start[kOperands + 1] = {};
    add_offsets(arguments, 0, arguments.kept, element, start);
    const int64_t step = arguments.policy.bands * height;
#pragma unroll 1
    for (int64_t first = int64_t{blockIdx.y} * height + row; first < arguments.policy.summands;
         first += kSummandsAtOnce * step) {
      int64_t offsets[kSummandsAtOnce][kOperands + 1];
#pragma unroll
      for (int u = 0; u < kSummandsAtOnce; ++u) {
        // Beyond the last a thread reads its first once more.
        const int64_t summand = first + u * step;
#pragma unroll
        for (int k = 0; k <= kOperands; ++k) offsets[u][k] = start[k];
        add_offsets(arguments, arguments.kept, arguments.dimensions,
                    summand < arguments.policy.summands ? summand : first, offsets[u]);
      }
      Raw<Real, 1> raw[kOperands + 1][kSummandsAtOnce];
      Real x[kOperands + 1][kSummandsAtOnce][1];
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        read_elements(
            arguments.dtypes[k], false, [&](int u) { return arguments.data[k] + offsets[u][k]; },
            raw[k]);
      if (arguments.has_incoming)
        read_elements(
            arguments.dtypes[kOperands], false,
            [&](int u) { return arguments.data[kOperands] + offsets[u][kOperands]; },
            raw[kOperands]);
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        convert_elements(arguments.dtypes[k], false, raw[k], x[k]);
      if (arguments.has_incoming) {
        convert_elements(arguments.dtypes[kOperands], false, raw[kOperands], x[kOperands]);
      } else {
#pragma unroll
        for (int u = 0; u < kSummandsAtOnce; ++u) x[kOperands][u][0] = Real(1);
      }
#pragma unroll
      for (int u = 0; u < kSummandsAtOnce; ++u) {
        Real operands[kOperands], gradient[kOperands];
#pragma unroll
        for (int n = 0; n < kOperands; ++n) operands[n] = x[n][u][0];
        loss.gradient(operands, x[kOperands][u][0], gradient);
        Real summand = gradient[0];
#pragma unroll
        for (int n = 1; n < kOperands; ++n) {
          const Real other = gradient[n];  // read whatever is chosen: no address, no stack
          summand = arguments.shared == n ? other : summand;
        }
        sum.add(first + u * step < arguments.policy.summands ? summand : Real(0));
      }
    }
  }
  if (height > 1) {
    const int at = row * width + column;
    scratch.put(at, sum);
#pragma unroll 1
    for (int half = height / 2; half > 0; half /= 2) {
      __syncthreads();
      if (row < half) {
        sum.add(scratch.get(at + half * width));
        scratch.put(at, sum);
      }
    }
  }
  if (row != 0 || !is_there) return;
  if (arguments.policy.bands == 1) {
    put_shared<Real>(arguments, element, sum);
  } else {
    put_sum(arguments.sums, blockIdx.y * arguments.policy.elements + element, sum);
  }
}

// Adds the bands' sums, a warp an element.
template <typename Real, typename Arguments>
__global__ void __launch_bounds__(kSharedThreads) shared_bands_kernel(const Arguments arguments) {
  using Sum = SumOf<Real>;
  const int64_t element = int64_t{blockIdx.x} * (kSharedThreads / kWarp) + threadIdx.x / kWarp;
  if (element >= arguments.policy.elements) return;
  Sum sum;
  for (int64_t band = threadIdx.x % kWarp; band < arguments.policy.bands; band += kWarp) {
    const double* const from =
        arguments.sums + (band * arguments.policy.elements + element) * Sum::kWords;
    Sum other;
#pragma unroll
    for (int w = 0; w < Sum::kWords; ++w) other.words[w] = from[w];
    sum.add(other);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) put_shared<Real>(arguments, element, sum);
}

template <typename Loss, typename Real>
Status launch_shared_gradient(const SharedGradientArguments& arguments,
                              const LaunchContext& context) {
  using Arguments = SharedArguments<Loss::signature.operands>;
  const Arguments shared(arguments, context.workspace);
  const SharedPolicy& policy = shared.policy;
  if (policy.elements == 0) return {};
  const Status status =
      launch("shared_gradient_kernel", shared_gradient_kernel<Loss, Real>,
             dim3(static_cast<unsigned>(policy.blocks), static_cast<unsigned>(policy.bands)),
             kSharedThreads, false, context.stream, Loss(arguments.parameters), shared);
  if (!status.ok() || policy.bands == 1) return status;
  const int64_t blocks = divide_up(policy.elements, kSharedThreads / kWarp);
  return launch("shared_bands_kernel", shared_bands_kernel<Real, Arguments>,
                dim3(static_cast<unsigned>(blocks)), kSharedThreads, false, context.stream, shared);
}

}  // namespace losscli::cuda
