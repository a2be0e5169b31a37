// The gradient that comes in: one number or one an element, or what is expected of it.
#pragma once

#include "core/cpu/incoming_number.h"
#include "elementwise/cpu/convert.h"
#include "elementwise/kernels.h"

namespace losscli::cpu {

// The one number that an operand consists of; 1 where there is no operand.
inline double read_number(const Operand& operand) {
  return operand.data ? read_number(operand.data, operand.dtype) : 1.0;
}

// What one launch computes its gradients for.
class Incoming : public IncomingNumber {
 public:
  explicit Incoming(const ElementwiseArguments& arguments)
      : IncomingNumber(
            arguments.expectation, arguments.guess,
            [&] { return has_tensor(arguments) ? 1.0 : read_number(arguments.grad_output); }),
        each_(has_tensor(arguments)) {}

  bool each() const { return each_; }  // whether each element has its own; else all share factor()

 private:
  static bool has_tensor(const ElementwiseArguments& arguments) {
    const bool guesses = arguments.expectation && arguments.guess != Guess::none;
    return !guesses && arguments.grad_output.data &&
           !is_scalar(arguments.grad_output, arguments.space);
  }

  bool each_;
};

}  // namespace losscli::cpu
