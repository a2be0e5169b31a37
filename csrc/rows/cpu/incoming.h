// The gradient that comes in: one number or one a row, or what is expected of it.
#pragma once

#include "core/cpu/incoming_number.h"
#include "elementwise/cpu/convert.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// The incoming gradient of a row; 1 where there is none.
inline double read_incoming(const RowArguments& arguments, int64_t row) {
  if (!arguments.grad_output) return 1;
  const int64_t element = row * arguments.grad_output_stride;
  return with_floating_type(arguments.grad_output_dtype, [&](auto stored) {
    return to_value<double>(static_cast<const decltype(stored)*>(arguments.grad_output)[element]);
  });
}

// What one launch computes its gradient for.
class Incoming : public IncomingNumber {
 public:
  explicit Incoming(const RowArguments& arguments)
      : IncomingNumber(arguments.expectation, arguments.guess,
                       [&] { return read_incoming(arguments, 0); }),
        arguments_(arguments) {}

  double of_row(int64_t row) const {
    return arguments_.grad_output_stride != 0 ? read_incoming(arguments_, row) : factor();
  }

 private:
  const RowArguments& arguments_;
};

}  // namespace losscli::cpu
