// What gradients are multiplied by, found on the device: an upstream gradient that is one number,
// or the number that one is expected to be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/expectation.h"
#include "elementwise/cuda/any_dtype.cuh"
#include "elementwise/kernels.h"

namespace losscli::cuda {

struct IncomingArguments {
  const void* number = nullptr;  // null stands for 1, and for what is to come
  Expectation* expectation = nullptr;
  Guess guess = Guess::none;
  DType dtype = DType::float32;  // of the number

  IncomingArguments(const ElementwiseArguments& arguments, bool is_tensor)
      : number(is_tensor ? nullptr : arguments.grad_output.data),
        expectation(arguments.expectation),
        guess(arguments.guess),
        dtype(arguments.grad_output.dtype) {}
};

template <typename Real>
struct Factor {
  Real value;
  bool writes;  // whether gradients are to be written at all
};

// An upstream gradient that is given, as it was read: looked at once a tile's loads are on their
// way.
class Given {
 public:
  template <typename Pass>
  __device__ __forceinline__ void read(const IncomingArguments& arguments) {
    if constexpr (Pass::gradient && !Pass::incoming_tensor) {
      if (arguments.number) bits_ = read_number(arguments.number, arguments.dtype);
    }
  }

  template <typename Real, typename Pass>
  __device__ __forceinline__ Factor<Real> factor(const IncomingArguments& arguments,
                                                 double scale) const {
    if constexpr (Pass::gradient && !Pass::incoming_tensor) {
      if (arguments.number)
        return {static_cast<Real>(scale * number_of(bits_, arguments.dtype)), true};
    }
    return {static_cast<Real>(scale), true};
  }

 private:
  uint64_t bits_ = 0;
};

// The same, or what is expected of it. Kernels read their first operands before they wait for it.
class Incoming {
 public:
  // In all blocks of a launch, before anything else. False where there is nothing to do: the
  // gradients have been written for this number.
  template <typename Pass>
  __device__ __forceinline__ bool read(const IncomingArguments& arguments) {
    if constexpr (Pass::gradient && !Pass::incoming_tensor) {
      const bool leads = blockIdx.x == 0 && threadIdx.x == 0;
      if (Pass::forward && arguments.guess == Guess::write) {
        const volatile unsigned long long* const words =
            reinterpret_cast<unsigned long long*>(arguments.expectation);
        bits_ = words[offsetof(Expectation, expected) / 8];
        state_ = words[offsetof(Expectation, misses) / 8];
        if (leads) {
          const Expectation expectation = expected();
          arguments.expectation->written =
              is_confident(expectation) ? expected_bits(expectation) : kNothingWritten;
        }
        return true;
      }
      if (arguments.number) bits_ = read_number(arguments.number, arguments.dtype);
      if (Pass::backward && arguments.guess != Guess::none) {
        uint64_t written = kNothingWritten;
        if (arguments.guess == Guess::check)
          written = *const_cast<const volatile uint64_t*>(&arguments.expectation->written);
        const uint64_t found =
            __double_as_longlong(arguments.number ? number_of(bits_, arguments.dtype) : 1.0);
        if (leads) learn(*arguments.expectation, found);
        return found != written || written == kNothingWritten;
      }
    }
    return true;
  }

  // To be called once a tile's loads are on their way.
  template <typename Real, typename Pass>
  __device__ __forceinline__ Factor<Real> factor(const IncomingArguments& arguments,
                                                 double scale) const {
    Factor<Real> factor{static_cast<Real>(scale), true};
    if constexpr (Pass::gradient && !Pass::incoming_tensor) {
      Incoming known = *this;
      // Known here, not before: the compiler would move all of this to where it was read.
      asm volatile("" : "+l"(known.bits_), "+l"(known.state_));
      if (Pass::forward && arguments.guess == Guess::write) {
        const Expectation expectation = known.expected();
        factor.value = static_cast<Real>(scale * __longlong_as_double(expected_bits(expectation)));
        factor.writes = is_confident(expectation);
      } else if (arguments.number) {
        factor.value = static_cast<Real>(scale * number_of(known.bits_, arguments.dtype));
      }
    }
    return factor;
  }

 private:
  __device__ __forceinline__ Expectation expected() const {
    Expectation expectation;
    expectation.expected = bits_;
    expectation.misses = static_cast<int32_t>(state_);
    expectation.seen = static_cast<int32_t>(state_ >> 32);
    return expectation;
  }

  uint64_t bits_ = 0;   // of the number, or of `expected`
  uint64_t state_ = 0;  // `misses` and `seen`
};

static_assert(offsetof(Expectation, misses) % 8 == 0 &&
                  offsetof(Expectation, seen) == offsetof(Expectation, misses) + 4,
              "both are read as one word");

}  // namespace losscli::cuda
