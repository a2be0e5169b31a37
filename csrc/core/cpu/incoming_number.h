// One upstream gradient for all elements, or what is expected of it.
#pragma once

#include "core/bits.h"
#include "core/expectation.h"

namespace losscli::cpu {

// The number that one launch computes its gradients for, and what it notes in an expectation.
class IncomingNumber {
 public:
  // `read()` gives the number that came in; not called for Guess::write, where none has.
  template <typename Read>
  IncomingNumber(Expectation* expectation, Guess guess, Read read)
      : expectation_(expectation), guess_(expectation ? guess : Guess::none) {
    if (guess_ == Guess::write) {
      found_ = expected_bits(*expectation_);
      wanted_ = is_confident(*expectation_);
      return;
    }
    found_ = bit_cast<uint64_t>(static_cast<double>(read()));
    if (guess_ == Guess::check)
      wanted_ = found_ != expectation_->written || found_ == kNothingWritten;
  }

  bool wanted() const { return wanted_; }  // whether gradients are to be computed at all
  double factor() const { return bit_cast<double>(found_); }

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
};

}  // namespace losscli::cpu
