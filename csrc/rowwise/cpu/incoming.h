// The gradient that comes in: one number or one a row, or what is expected of it.
#pragma once

#include "core/bits.h"
#include "elementwise/cpu/convert.h"
#include "rowwise/kernels.h"

namespace losscli::cpu {

// What one launch computes its gradient for, and what it notes in an expectation.
class Incoming {
 public:
  explicit Incoming(const RowArguments& arguments)
      : arguments_(arguments),
        expectation_(arguments.expectation),
        guess_(expectation_ ? arguments.guess : Guess::none) {
    switch (guess_) {
      case Guess::none:
        each_ = arguments.grad_output && arguments.grad_output_stride != 0;
        if (!each_) factor_ = read(0);
        return;
      case Guess::write:
        found_ = expected_bits(*expectation_);
        wanted_ = is_confident(*expectation_);
        break;
      case Guess::check:
        found_ = bit_cast<uint64_t>(read(0));
        wanted_ = found_ != expectation_->written || found_ == kNothingWritten;
        break;
      case Guess::learn:
        found_ = bit_cast<uint64_t>(read(0));
        break;
    }
    factor_ = bit_cast<double>(found_);
  }

  bool wanted() const { return wanted_; }  // whether the gradient is to be computed at all
  double of_row(int64_t row) const {
    return each_ ? read(row * arguments_.grad_output_stride) : factor_;
  }

  // To be called when the gradient is in memory.
  void note() const {
    if (guess_ == Guess::write) expectation_->written = wanted_ ? found_ : kNothingWritten;
    if (guess_ == Guess::check || guess_ == Guess::learn) learn(*expectation_, found_);
  }

 private:
  double read(int64_t element) const {
    if (!arguments_.grad_output) return 1;
    return with_floating_type(arguments_.grad_output_dtype, [&](auto stored) {
      return to_value<double>(
          static_cast<const decltype(stored)*>(arguments_.grad_output)[element]);
    });
  }

  const RowArguments& arguments_;
  Expectation* expectation_;
  Guess guess_;
  uint64_t found_ = 0;
  bool wanted_ = true;
  bool each_ = false;
  double factor_ = 1;
};

}  // namespace losscli::cpu
