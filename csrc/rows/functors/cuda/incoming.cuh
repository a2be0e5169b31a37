// What the gradients of a row are multiplied by: an incoming gradient, or what it is expected to
// be, over what a mean divides by; and what is known of rows before they are read.
#pragma once

#include "core/cuda/memory.cuh"
#include "core/expectation.h"
#include "rows/functors/kernels.h"

namespace losscli::cuda {

// Memory of one launch besides its operands.
struct FunctorMemory {
  double* losses = nullptr;     // of the rows, for a sum or a mean
  double* count = nullptr;      // what a mean divides by, where it has to be counted
  unsigned* arrived = nullptr;  // blocks that have summed; zero before a launch and after it
};

__device__ __forceinline__ double read_number(const void* data, DType dtype, int64_t at) {
  switch (dtype) {
    case DType::float64:
      return static_cast<const double*>(data)[at];
    case DType::float16:
      return widen(static_cast<const __half*>(data)[at]);
    case DType::bfloat16:
      return widen(static_cast<const __nv_bfloat16*>(data)[at]);
    case DType::int64:
      return static_cast<double>(static_cast<const int64_t*>(data)[at]);
    case DType::int32:
      return static_cast<const int32_t*>(data)[at];
    case DType::int16:
      return static_cast<const int16_t*>(data)[at];
    case DType::int8:
      return static_cast<const int8_t*>(data)[at];
    case DType::uint8:
      return static_cast<const uint8_t*>(data)[at];
    case DType::boolean:
      return static_cast<const bool*>(data)[at];
    default:
      return static_cast<const float*>(data)[at];
  }
}

__device__ __forceinline__ int64_t read_label(const FunctorArguments& arguments, int64_t row) {
  const int64_t at = arguments.labels_strides.start(row, arguments.inner);
  switch (arguments.labels_dtype) {
    case DType::int64:
      return static_cast<const int64_t*>(arguments.labels)[at];
    case DType::int32:
      return static_cast<const int32_t*>(arguments.labels)[at];
    default:
      return static_cast<const uint8_t*>(arguments.labels)[at];
  }
}

template <typename Stored, typename Real>
__device__ __forceinline__ void put_value(const FunctorArguments& arguments, int64_t place,
                                          Real value) {
  if (arguments.wide)
    static_cast<Real*>(arguments.value)[place] = value;
  else
    narrow(value, static_cast<Stored*>(arguments.value)[place]);
}

// What is read of a row before anything that depends on it.
struct RowNumbers {
  int64_t label = -1;
  double target = 0;
  bool counts = true;

  RowNumbers() = default;

  template <typename Loss>
  __device__ __forceinline__ static RowNumbers read(const FunctorArguments& a, int64_t row) {
    RowNumbers numbers;
    if (a.mask) numbers.counts = a.mask[a.mask_strides.start(row, a.inner)];
    if constexpr (Loss::labelled) numbers.label = read_label(a, row);
    if constexpr (Loss::targeted)
      numbers.target = read_number(a.labels, a.labels_dtype, a.labels_strides.start(row, a.inner));
    return numbers;
  }
};

// Whether a row counts, and the facts of one that does.
template <typename Loss, typename Stored, typename Real>
struct KnownRow {
  RowFacts<Real> facts;
  bool counts = true;
  bool known = true;  // whether its label is the number of a class

  KnownRow() = default;

  __device__ __forceinline__ KnownRow(const FunctorArguments& a, const Loss& loss,
                                      const RowNumbers& numbers)
      : counts(numbers.counts) {
    facts.length = a.length;
    if constexpr (Loss::labelled) {
      facts.label = numbers.label;
      counts = counts && !loss.ignores(facts.label);
      known = !counts || (facts.label >= 0 && facts.label < a.length);
      if (!counts || !known) {
        facts.label = -1;
      } else if (a.weight) {
        facts.weight = static_cast<Real>(widen(static_cast<const Stored*>(a.weight)[facts.label]));
      }
    }
    if constexpr (Loss::targeted) facts.target = static_cast<Real>(numbers.target);
  }

  // Whether its loss and gradients are computed; if not, they are `nothing`.
  __device__ __forceinline__ bool is_normal() const { return counts && known; }
  __device__ __forceinline__ Real nothing() const {
    return counts ? static_cast<Real>(NAN) : Real(0);
  }

  // What it counts in a mean. A loss whose label is no class is NaN, and so are all gradients of a
  // mean with it.
  __device__ __forceinline__ double share() const {
    if (!counts) return 0;
    if (!known) return NAN;
    return Loss::mean_of_weights ? static_cast<double>(facts.weight) : 1.0;
  }
};

__device__ __forceinline__ double read_incoming(const FunctorArguments& arguments, int64_t row,
                                                int output) {
  if (!arguments.grad_output) return output == 0;
  return read_number(
      arguments.grad_output, arguments.grad_output_dtype,
      row * arguments.grad_output_stride + output * arguments.grad_output_output_stride);
}

// Whether gradients that were written ahead have been written for the number that came.
__device__ __forceinline__ bool is_written(const FunctorArguments& arguments) {
  if (arguments.guess != Guess::check) return false;
  const uint64_t written = *const_cast<const volatile uint64_t*>(&arguments.expectation->written);
  return written != kNothingWritten &&
         written == static_cast<uint64_t>(__double_as_longlong(read_incoming(arguments, 0, 0)));
}

// Read in all blocks of a launch before anything else.
class FunctorIncoming {
 public:
  __device__ __forceinline__ FunctorIncoming(const FunctorArguments& arguments,
                                             const FunctorMemory& memory) {
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
      is_done = is_written(arguments);
      if (leads) learn(*arguments.expectation, __double_as_longlong(number_));
    }
    if (is_done || arguments.reduction != RowReduction::mean) return;
    number_ /= memory.count ? *memory.count : static_cast<double>(arguments.rows());
  }

  // Of a value of a row.
  template <typename Real>
  __device__ __forceinline__ Real of(const FunctorArguments& arguments, int64_t row,
                                     int output) const {
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
