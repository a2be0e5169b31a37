// The memory of a launch over rows, and what the gradients of a row are multiplied by: an incoming
// gradient, or what it is expected to be, over what a mean divides by.
#pragma once

#include "core/cuda/memory.cuh"
#include "core/expectation.h"
#include "reduce/cuda/sum.cuh"
#include "rows/kernels.h"

namespace losscli::cuda {

constexpr int kTotalThreads = 1024;
constexpr int kMostTotals = 256;
constexpr int kOneTotal = 8 * kTotalThreads;  // sums that one block adds up alone

// Of losses, and of what they count in a mean.
struct alignas(16) RowSums {
  static constexpr int kWords = 2;
  double words[kWords] = {};

  RowSums() = default;
  __device__ __forceinline__ RowSums(double loss, double count) : words{loss, count} {}
  __device__ __forceinline__ double loss() const { return words[0]; }
  __device__ __forceinline__ double count() const { return words[1]; }
  __device__ __forceinline__ void add(const RowSums& other) {
    words[0] += other.words[0];
    words[1] += other.words[1];
  }
};

// Memory of one launch besides its operands.
struct RowMemory {
  RowSums* sums = nullptr;  // of rows, or of some rows each, for a sum or a mean
  int64_t terms = 0;        // so many of them
  double* count = nullptr;  // what a mean divides by, where it has to be counted
  bool counts = false;      // whether each block or warp counts it itself
  bool is_one = false;      // whether one block has all rows, and puts the value where it goes
  bool finishes = false;    // whether the last block does, after it has added all sums
  // Both are zero before a launch and after it.
  int* claimed = nullptr;       // rows that have been claimed
  unsigned* arrived = nullptr;  // blocks that have summed
};

__device__ __forceinline__ double read_number(const void* data, DType dtype, int64_t at) {
  return with_type_of<__half, __nv_bfloat16>(dtype, [&](auto type) -> double {
    const auto stored = static_cast<const decltype(type)*>(data)[at];
    if constexpr (std::is_integral_v<decltype(type)>)
      return static_cast<double>(stored);
    else
      return widen(stored);
  });
}

__device__ __forceinline__ double read_incoming(const RowArguments& arguments, int64_t row,
                                                int output) {
  if (!arguments.grad_output) return output == 0;
  return read_number(
      arguments.grad_output, arguments.grad_output_dtype,
      row * arguments.grad_output_stride + output * arguments.grad_output_output_stride);
}

// Whether gradients that were written ahead have been written for the number that came.
__device__ __forceinline__ bool is_written(const RowArguments& arguments, double number) {
  if (arguments.guess != Guess::check) return false;
  const uint64_t written = *const_cast<const volatile uint64_t*>(&arguments.expectation->written);
  return written != kNothingWritten &&
         written == static_cast<uint64_t>(__double_as_longlong(number));
}

// Lets the next launch of a call begin early, and awaits the end of the launch ahead if this one
// began early (launch.h).
__device__ __forceinline__ void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void await_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Read in all blocks of a launch before anything else; what a mean divides by may be read `later`,
// by settle().
class RowIncoming {
 public:
  RowIncoming() = default;
  __device__ __forceinline__ RowIncoming(const RowArguments& arguments, const RowMemory& memory,
                                         bool later = false) {
    release_next();
    // Backward may be launched early; with a count, behind the launch that counts.
    if (arguments.guess == Guess::check || (arguments.grad_output && !memory.count)) await_ahead();
    const bool leads = blockIdx.x == 0 && threadIdx.x == 0;
    if (arguments.guess == Guess::write) {
      const volatile Expectation& shared = *arguments.expectation;
      Expectation known;
      known.expected = shared.expected;
      known.misses = shared.misses;
      known.seen = shared.seen;
      writes = is_confident(known);
      number_ = __longlong_as_double(expected_bits(known));
      if (leads) arguments.expectation->written = writes ? expected_bits(known) : kNothingWritten;
    } else if (arguments.reduction != RowReduction::none) {
      number_ = read_incoming(arguments, 0, 0);
    }
    if (arguments.guess == Guess::check || arguments.guess == Guess::learn) {
      is_done = is_written(arguments, number_);
      if (leads) learn(*arguments.expectation, __double_as_longlong(number_));
    }
    if (is_done || !later) settle(arguments, memory);
  }

  // By all threads, before `of`.
  __device__ __forceinline__ void settle(const RowArguments& arguments, const RowMemory& memory) {
    await_ahead();
    if (is_done || memory.counts || arguments.reduction != RowReduction::mean) return;
    // By way of the L1: where each of 65,536 warps asked the L2 for it, they waited for each other.
    number_ /= memory.count ? *memory.count : static_cast<double>(arguments.rows());
  }

  // By what a mean divides by, where blocks count it.
  __device__ __forceinline__ void divide(double count) { number_ /= count; }

  // Of a value of a row.
  template <typename Real>
  __device__ __forceinline__ Real of(const RowArguments& arguments, int64_t row,
                                     int output = 0) const {
    if (arguments.reduction != RowReduction::none)
      return output == 0 ? static_cast<Real>(number_) : Real(0);
    if (output >= arguments.outputs) return 0;
    return static_cast<Real>(read_incoming(arguments, row, output));
  }

  bool is_done = false;  // the gradients have been written for this number
  bool writes = true;    // whether gradients are to be written at all

 private:
  double number_ = 1;
};

}  // namespace losscli::cuda
