// The gradient of an operand that several elements of the loss share: a sum for each of its
// elements, over the rows that repeat it, over the columns, or both.
#pragma once

#include "launch.h"
#include "reduce.cuh"

namespace losscli::cuda {

constexpr int kColumns = 32, kRowsAtOnce = 8;
constexpr int kSharedThreads = kColumns * kRowsAtOnce;

// How the sums are cut: each element's summands in `bands`, which a second kernel adds.
struct SharedCut {
  bool columns;    // neighbouring threads take neighbouring elements, not one element's summands
  int64_t rows;    // repeats of the whole operand
  int64_t blocks;  // along the elements
  int64_t bands;
};

inline const Operand& shared_operand(const SharedGradientArguments& arguments) {
  return arguments.for_target ? arguments.target : arguments.input;
}

inline SharedCut shared_cut(const SharedGradientArguments& arguments) {
  const Operand& shared = shared_operand(arguments);
  SharedCut cut;
  cut.rows = arguments.size / shared.inner / shared.period;
  cut.columns = shared.inner == 1 && shared.period >= kColumns;
  cut.blocks = cut.columns ? divide_up(shared.period, kColumns)
                           : std::min<int64_t>(shared.period, kMostBlocks);
  const int64_t summands = cut.columns ? cut.rows : cut.rows * shared.inner;
  const int64_t most = divide_up(summands, cut.columns ? kRowsAtOnce : kSharedThreads);
  cut.bands = std::clamp<int64_t>(divide_up(kSharedBlocks, cut.blocks), 1, most);
  return cut;
}

template <typename Loss, typename Stored>
__device__ __forceinline__ double shared_summand(const Loss& loss,
                                                 const SharedGradientArguments& arguments,
                                                 int64_t element, int64_t i) {
  using Real = RealOf<Stored>;
  const auto read = [&](const Operand& operand, bool shared) {
    return widen(
        static_cast<const Stored*>(operand.data)[shared ? element : element_at(operand, i)]);
  };
  const Real x = read(arguments.input, !arguments.for_target);
  const Real y = read(arguments.target, arguments.for_target);
  const Real incoming = arguments.grad_output.data ? read(arguments.grad_output, false) : Real(1);
  const auto gradient = loss.gradient(x, y, incoming);
  return arguments.for_target ? gradient.target : gradient.input;
}

// Writes the gradient, or where bands are to be added first, the sum of one.
template <typename Stored>
__device__ __forceinline__ void put_shared(const SharedGradientArguments& arguments,
                                           const SharedCut& cut, double* sums, int64_t element,
                                           double sum) {
  const int64_t period = (arguments.for_target ? arguments.target : arguments.input).period;
  if (cut.bands > 1) {
    sums[blockIdx.y * period + element] = sum;
  } else {
    narrow(static_cast<RealOf<Stored>>(sum * arguments.scale),
           static_cast<Stored*>(arguments.gradient)[element]);
  }
}

// Threads of a warp take 32 neighbouring elements, warps every eighth row.
template <typename Loss, typename Stored>
__global__ void __launch_bounds__(kSharedThreads)
    shared_columns_kernel(const Loss loss, const SharedGradientArguments arguments,
                          const SharedCut cut, double* sums) {
  __shared__ double scratch[kRowsAtOnce][kColumns];
  const int64_t period = (arguments.for_target ? arguments.target : arguments.input).period;
  const int column = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  const int64_t element = int64_t{blockIdx.x} * kColumns + column;
  double sum = 0;
  if (element < period)
    for (int64_t r = int64_t{blockIdx.y} * kRowsAtOnce + row; r < cut.rows;
         r += cut.bands * kRowsAtOnce)
      sum += shared_summand<Loss, Stored>(loss, arguments, element, r * period + element);
  scratch[row][column] = sum;
  __syncthreads();
  if (row == 0 && element < period) {
    for (int other = 1; other < kRowsAtOnce; ++other) sum += scratch[other][column];
    put_shared<Stored>(arguments, cut, sums, element, sum);
  }
}

// The threads of a block take one element's summands.
template <typename Loss, typename Stored>
__global__ void __launch_bounds__(kSharedThreads)
    shared_element_kernel(const Loss loss, const SharedGradientArguments arguments,
                          const SharedCut cut, double* sums) {
  __shared__ double scratch[kWarp];
  const Operand& shared = arguments.for_target ? arguments.target : arguments.input;
  const int64_t summands = cut.rows * shared.inner;
  for (int64_t element = blockIdx.x; element < shared.period; element += gridDim.x) {
    double sum = 0;
#pragma unroll 1  // unrolled, the divisions leave a register to spill
    for (int64_t s = int64_t{blockIdx.y} * kSharedThreads + threadIdx.x; s < summands;
         s += cut.bands * kSharedThreads) {
      const int64_t row = cut.rows == 1 ? 0 : s / shared.inner;
      const int64_t i = (row * shared.period + element) * shared.inner + (s - row * shared.inner);
      sum += shared_summand<Loss, Stored>(loss, arguments, element, i);
    }
    sum = block_sum<kSharedThreads>(sum, scratch);
    if (threadIdx.x == 0) put_shared<Stored>(arguments, cut, sums, element, sum);
  }
}

template <typename Stored>
__global__ void __launch_bounds__(kSharedThreads)
    shared_finish_kernel(const SharedGradientArguments arguments, const SharedCut cut,
                         const double* sums) {
  const int64_t period = (arguments.for_target ? arguments.target : arguments.input).period;
  const int64_t element = int64_t{blockIdx.x} * kSharedThreads + threadIdx.x;
  if (element >= period) return;
  double sum = 0;
  for (int64_t band = 0; band < cut.bands; ++band) sum += sums[band * period + element];
  narrow(static_cast<RealOf<Stored>>(sum * arguments.scale),
         static_cast<Stored*>(arguments.gradient)[element]);
}

inline size_t shared_gradient_bytes(const SharedGradientArguments& arguments) {
  const int64_t bands = shared_cut(arguments).bands;
  return bands > 1 ? bands * shared_operand(arguments).period * sizeof(double) : 0;
}

template <template <typename> class Loss, typename Stored>
void launch_shared_gradient(const SharedGradientArguments& arguments,
                            const LaunchContext& context) {
  using Functor = Loss<RealOf<Stored>>;
  const Functor loss(arguments.parameters);
  const SharedCut cut = shared_cut(arguments);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  auto* sums = static_cast<double*>(context.workspace);
  const dim3 grid(static_cast<unsigned>(cut.blocks), static_cast<unsigned>(cut.bands));
  if (cut.columns) {
    shared_columns_kernel<Functor, Stored>
        <<<grid, kSharedThreads, 0, stream>>>(loss, arguments, cut, sums);
  } else {
    shared_element_kernel<Functor, Stored>
        <<<grid, kSharedThreads, 0, stream>>>(loss, arguments, cut, sums);
  }
  check_launch("shared_gradient", cut.blocks * cut.bands, kSharedThreads);
  if (cut.bands == 1) return;
  const int64_t blocks = divide_up(shared_operand(arguments).period, kSharedThreads);
  shared_finish_kernel<Stored>
      <<<static_cast<unsigned>(blocks), kSharedThreads, 0, stream>>>(arguments, cut, sums);
  check_launch("shared_finish", blocks, kSharedThreads);
}

}  // namespace losscli::cuda
