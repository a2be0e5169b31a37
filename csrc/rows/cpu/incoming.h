// The gradient that comes in, of any dtype.
#pragma once

#include <algorithm>

#include "core/cpu/incoming_number.h"
#include "core/operand.h"
#include "elementwise/cpu/convert.h"
#include "rows/cpu/lanes.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// The upstream gradient of each value of a row: a number, what is expected of it, or one for each.
class RowIncoming : public IncomingNumber {
 public:
  explicit RowIncoming(const RowArguments& arguments)
      : IncomingNumber(arguments.expectation, arguments.guess,
                       [&] { return read(arguments, 0, 0); }),
        arguments_(arguments) {}

  double of(int64_t row, int output) const {
    if (arguments_.reduction == RowReduction::none && arguments_.grad_output)
      return output < arguments_.outputs ? read(arguments_, row, output) : 0.0;
    return output == 0 ? factor() : 0.0;
  }

  // That of a value of rows side by side, times a number.
  void of_rows(const RowSpan& rows, int output, double scale, double* to) const {
    const RowArguments& a = arguments_;
    if (a.reduction != RowReduction::none || !a.grad_output || output >= a.outputs)
      return void(std::fill_n(to, kLanes, of(rows.first, output) * scale));
    with_type(a.grad_output_dtype, [&](auto stored) {
      const auto* from = static_cast<const decltype(stored)*>(a.grad_output);
      from += rows.first * a.grad_output_stride + output * a.grad_output_output_stride;
      std::fill_n(to, kLanes, 0.0);
      for (int lane = 0; lane < rows.count; ++lane)
        to[lane] = to_value<double>(from[lane * a.grad_output_stride]) * scale;
    });
  }

 private:
  static double read(const RowArguments& arguments, int64_t row, int output) {
    if (!arguments.grad_output) return 1;
    return read_number(
        arguments.grad_output, arguments.grad_output_dtype,
        row * arguments.grad_output_stride + output * arguments.grad_output_output_stride);
  }

  const RowArguments& arguments_;
};

}  // namespace losscli::cpu
