// What a loss expects its upstream gradient to be.
//
// In training it is the same number for many steps. So forward writes the gradients for the number
// that the last backward found, and backward has nothing to do when it finds it again. All of it is
// kept where the kernels run, so that the host never waits. Whether the gradients are written ahead
// or computed in backward, they are computed from the operands in one rounding: the bits are the
// same.
//
// One expectation belongs to one call at a time, from its forward to its backward, and the kernels
// of both run in that order. Forward reads `expected` and `misses` and writes `written`; backward
// reads `written` in all its blocks and updates the rest in one of them: no kernel reads what it
// writes, so it may do so with any number of blocks. Zeros are a valid beginning.
//
// While guesses fail, the look at the upstream gradient is for nothing. So the device tells the
// host when it loses confidence and when it has it again; the host reads that without waiting, a
// few calls late perhaps, and meanwhile launches neither: forward computes the loss alone, backward
// the gradients, and learns.
#pragma once

#include <cstdint>

#include "core/platform.h"

namespace losscli {

// After so many wrong guesses in a row, forward writes nothing ahead, until two upstream gradients
// in a row have been the same.
constexpr int32_t kMostMisses = 2;

// The bits of a NaN that no conversion gives: `written` where there is nothing.
constexpr uint64_t kNothingWritten = 0xffffffffffffffffull;

struct Expectation {
  uint64_t expected = 0;               // bits of a double; see `seen`
  uint64_t written = kNothingWritten;  // bits of the double that the gradients in memory are for
  int32_t misses = 0;                  // in a row
  int32_t seen = 0;  // whether `expected` was found by a backward; before, 1 is expected
  // Where the host reads that confidence is lost; null where it reads this struct itself.
  volatile int32_t* doubted = nullptr;
};

constexpr uint64_t kBitsOfOne = 0x3ff0000000000000ull;

LOSSCLI_HOST_DEVICE uint64_t expected_bits(const Expectation& expectation) {
  return expectation.seen ? expectation.expected : kBitsOfOne;
}

// Whether forward is to write the gradients ahead.
LOSSCLI_HOST_DEVICE bool is_confident(const Expectation& expectation) {
  return expectation.misses < kMostMisses;
}

// Learns what a backward found; not `written`.
LOSSCLI_HOST_DEVICE void learn(Expectation& expectation, uint64_t found) {
  const bool confident = is_confident(expectation);
  if (found == expected_bits(expectation)) {
    expectation.misses = 0;
  } else {
    expectation.misses = confident ? expectation.misses + 1 : kMostMisses;
    expectation.expected = found;
    expectation.seen = 1;
  }
  if (expectation.doubted && is_confident(expectation) != confident)
    *expectation.doubted = confident;
}

// What a launch has to do with an expectation.
enum class Guess : int32_t {
  none,   // nothing: gradients are computed for `grad_output`, 1 where it is null
  write,  // forward: write the gradients for what is expected, or not at all, and note which
  check,  // backward: leave the gradients alone where `written` is the upstream gradient, else
          // compute them; learn
  learn,  // backward: compute the gradients; learn
};

}  // namespace losscli
