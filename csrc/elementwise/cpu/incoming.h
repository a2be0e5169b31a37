// The gradient that comes in: one number or one an element, or what is expected of it.
#pragma once

#include "core/bits.h"
#include "elementwise/cpu/convert.h"
#include "elementwise/kernels.h"

namespace losscli::cpu {

// The one number that an operand consists of; 1 where there is no operand.
inline double read_number(const Operand& operand) {
  if (!operand.data) return 1.0;
  return with_type(operand.dtype, [&](auto stored) {
    return to_value<double>(*static_cast<const decltype(stored)*>(operand.data));
  });
}

// What one launch computes its gradients for, and what it notes in an expectation.
class Incoming {
 public:
  explicit Incoming(const ElementwiseArguments& arguments) : expectation_(arguments.expectation) {
    guess_ = expectation_ ? arguments.guess : Guess::none;
    switch (guess_) {
      case Guess::none:
        each_ = arguments.grad_output.data && !is_scalar(arguments.grad_output, arguments.space);
        if (!each_) factor_ = read_number(arguments.grad_output);
        return;
      case Guess::write:
        found_ = expected_bits(*expectation_);
        wanted_ = is_confident(*expectation_);
        break;
      case Guess::check:
        found_ = bit_cast<uint64_t>(read_number(arguments.grad_output));
        wanted_ = found_ != expectation_->written || found_ == kNothingWritten;
        break;
      case Guess::learn:
        found_ = bit_cast<uint64_t>(read_number(arguments.grad_output));
        break;
    }
    factor_ = bit_cast<double>(found_);
  }

  bool wanted() const { return wanted_; }    // whether gradients are to be computed at all
  bool each() const { return each_; }        // whether each element has its own
  double factor() const { return factor_; }  // where all share one

  // To be called when the gradients are in memory.
  void note() const {
    if (guess_ == Guess::write) expectation_->written = wanted_ ? found_ : kNothingWritten;
    if (guess_ == Guess::check || guess_ == Guess::learn) learn(*expectation_, found_);
  }

 private:
  Expectation* expectation_;
  Guess guess_;
  uint64_t found_ = 0;
  bool wanted_ = true;
  bool each_ = false;
  double factor_ = 1;
};

}  // namespace losscli::cpu
