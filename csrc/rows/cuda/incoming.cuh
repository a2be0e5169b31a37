// What the gradients of a row are multiplied by: an incoming gradient, or what it is expected to
// be, times the scale of the reduction.
#pragma once

#include <cstddef>

#include "core/expectation.h"
#include "rows/cuda/target.cuh"

namespace losscli::cuda {

__device__ __forceinline__ double read_incoming(const RowArguments& arguments, int64_t row) {
  if (!arguments.grad_output) return 1;
  const int64_t at = row * arguments.grad_output_stride;
  switch (arguments.grad_output_dtype) {
    case DType::float64:
      return static_cast<const double*>(arguments.grad_output)[at];
    case DType::float16:
      return widen(static_cast<const __half*>(arguments.grad_output)[at]);
    case DType::bfloat16:
      return widen(static_cast<const __nv_bfloat16*>(arguments.grad_output)[at]);
    default:
      return static_cast<const float*>(arguments.grad_output)[at];
  }
}

// Whether gradients that were written ahead have been written for the number that came.
__device__ __forceinline__ bool is_written(const RowArguments& arguments) {
  if (arguments.guess != Guess::check) return false;
  const uint64_t written = *const_cast<const volatile uint64_t*>(&arguments.expectation->written);
  return written != kNothingWritten &&
         written == static_cast<uint64_t>(__double_as_longlong(read_incoming(arguments, 0)));
}

// Read in all blocks of a launch before anything else.
class RowIncoming {
 public:
  __device__ __forceinline__ explicit RowIncoming(const RowArguments& arguments,
                                                  const RowMemory& memory) {
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
    } else if (arguments.guess != Guess::none || !arguments.grad_output_stride) {
      number_ = read_incoming(arguments, 0);
    }
    if (arguments.guess == Guess::check || arguments.guess == Guess::learn) {
      is_done = is_written(arguments);
      if (leads) learn(*arguments.expectation, __double_as_longlong(number_));
    }
    if (is_done) return;
    if (memory.total_weight) number_ /= *memory.total_weight;
    if (arguments.reduction == RowReduction::mean && arguments.probabilities)
      number_ /= static_cast<double>(arguments.rows());
  }

  // Times the scale.
  template <typename Real>
  __device__ __forceinline__ Real of(const RowArguments& arguments, int64_t row) const {
    if (arguments.grad_output_stride) return static_cast<Real>(read_incoming(arguments, row));
    return static_cast<Real>(number_);
  }

  bool is_done = false;  // the gradients have been written for this number
  bool writes = true;    // whether gradients are to be written at all

 private:
  double number_ = 1;
};

}  // namespace losscli::cuda
