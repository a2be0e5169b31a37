// What is known of the rows of a call before they are read: which count, their class numbers and
// targets, what a mean divides by.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cpu/incoming_number.h"
#include "core/cpu/parallel.h"
#include "core/operand.h"
#include "elementwise/cpu/convert.h"
#include "reduce/cpu/compensated.h"
#include "rows/kernels.h"

namespace losscli::cpu {

inline double read_number(const void* data, DType dtype, int64_t element) {
  return with_type(dtype, [&](auto stored) {
    return to_value<double>(static_cast<const decltype(stored)*>(data)[element]);
  });
}

inline int64_t read_label(const RowArguments& arguments, int64_t row) {
  const int64_t element = arguments.label_strides.start(row, arguments.inner);
  switch (arguments.labels_dtype) {
    case DType::int64:
      return static_cast<const int64_t*>(arguments.labels)[element];
    case DType::int32:
      return static_cast<const int32_t*>(arguments.labels)[element];
    default:
      return static_cast<const uint8_t*>(arguments.labels)[element];
  }
}

// The facts of each row, and whether it counts. `Loss` is the functor in double.
template <typename Loss, typename Stored>
class Facts {
 public:
  Facts(const RowArguments& arguments, const Loss& loss) : arguments_(arguments), loss_(loss) {}

  bool counts(int64_t row) const {
    const RowArguments& a = arguments_;
    if (a.mask && !a.mask[a.mask_strides.start(row, a.inner)]) return false;
    return !Loss::labelled || !loss_.ignores(read_label(a, row));
  }

  RowFacts<double> of_row(int64_t row) const {
    RowFacts<double> facts;
    facts.length = arguments_.length;
    if constexpr (Loss::labelled) {
      facts.label = read_label(arguments_, row);
      facts.weight = weight(facts.label);
      const auto* const first = static_cast<const Stored*>(arguments_.operands[0]);
      const RowStrides& strides = arguments_.strides[0];
      facts.picked = to_value<double>(
          first[strides.start(row, arguments_.inner) + facts.label * strides.element]);
    }
    if constexpr (Loss::targeted)
      facts.target = read_number(arguments_.targets, arguments_.targets_dtype,
                                 arguments_.target_strides.start(row, arguments_.inner));
    return facts;
  }

  // What a mean divides by. Throws where the label of a row that counts is no class.
  double check_and_count(const LaunchContext& context) const {
    constexpr int64_t kRows = 4096;  // that one thread takes at a time
    const int64_t rows = arguments_.rows(), chunks = divide_up(rows, kRows);
    if (!Loss::labelled && !arguments_.mask) return static_cast<double>(rows);
    std::vector<Compensated> sums(chunks);
    std::vector<int64_t> wrong(chunks, -1);
    parallel(context, chunks, [&](int64_t chunk) {
      const int64_t last = rows < (chunk + 1) * kRows ? rows : (chunk + 1) * kRows;
      for (int64_t row = chunk * kRows; row < last; ++row) {
        if (!counts(row)) continue;
        double count = 1;
        if constexpr (Loss::labelled) {
          const int64_t label = read_label(arguments_, row);
          if (label < 0 || label >= arguments_.length) {
            wrong[chunk] = row;
            return;
          }
          if constexpr (Loss::mean_of_weights) count = weight(label);
        }
        sums[chunk].add(count);
      }
    });
    Compensated total;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (wrong[chunk] >= 0) refuse(wrong[chunk]);
      total.add(sums[chunk]);
    }
    return total.total();
  }

 private:
  double weight(int64_t label) const {
    const auto* const weight = static_cast<const Stored*>(arguments_.weight);
    return weight ? to_value<double>(weight[label]) : 1.0;
  }

  [[noreturn]] void refuse(int64_t row) const {
    throw std::out_of_range("target " + std::to_string(read_label(arguments_, row)) + " of row " +
                            std::to_string(row) + " is not one of the " +
                            std::to_string(arguments_.length) + " classes");
  }

  const RowArguments& arguments_;
  const Loss& loss_;
};

// The incoming gradient of each value of a row: a number, what is expected of it, or one for each.
class FunctorIncoming : public IncomingNumber {
 public:
  explicit FunctorIncoming(const RowArguments& arguments)
      : IncomingNumber(arguments.expectation, arguments.guess,
                       [&] { return read(arguments, 0, 0); }),
        arguments_(arguments) {}

  double of(int64_t row, int output) const {
    if (arguments_.reduction == RowReduction::none && arguments_.grad_output)
      return output < arguments_.outputs ? read(arguments_, row, output) : 0.0;
    return output == 0 ? factor() : 0.0;
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
