// The class numbers of the rows: read, checked, and what the mean over rows is divided by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cpu/parallel.h"
#include "core/operand.h"
#include "elementwise/cpu/convert.h"
#include "rows/cross_entropy.h"

namespace losscli::cpu {

constexpr int64_t kNoTarget = -1;  // of an ignored row

class Targets {
 public:
  explicit Targets(const RowArguments& arguments) : arguments_(arguments) {}

  // The class of a row, kNoTarget where the row is ignored or has probabilities.
  int64_t of_row(int64_t row) const {
    if (arguments_.operands[1]) return kNoTarget;
    const int64_t number = read(row);
    return number == ignore_index(arguments_) ? kNoTarget : number;
  }

  // Checks all class numbers, and returns the sum of the weights of their classes, added in an
  // order that does not depend on the number of threads. Throws where a row has a target that is no
  // class.
  template <typename Stored>
  double total_weight(const LaunchContext& context) const {
    constexpr int64_t kRows = 4096;  // that one thread takes at a time
    const int64_t rows = arguments_.rows(), chunks = divide_up(rows, kRows);
    const auto* const weight = static_cast<const Stored*>(arguments_.weight);
    std::vector<double> sums(chunks);
    std::vector<int64_t> wrong(chunks, -1);
    parallel(context, chunks, [&](int64_t chunk) {
      double sum = 0;
      const int64_t last = std::min(rows, (chunk + 1) * kRows);
      for (int64_t row = chunk * kRows; row < last; ++row) {
        const int64_t number = read(row);
        if (number == ignore_index(arguments_)) continue;
        if (number < 0 || number >= arguments_.length) {
          wrong[chunk] = row;
          return;
        }
        sum += weight ? to_value<double>(weight[number]) : 1.0;
      }
      sums[chunk] = sum;
    });
    double total = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (wrong[chunk] >= 0) refuse(wrong[chunk]);
      total += sums[chunk];
    }
    return total;
  }

 private:
  int64_t read(int64_t row) const {
    const int64_t element = arguments_.label_strides.start(row, arguments_.inner);
    switch (arguments_.labels_dtype) {
      case DType::int64:
        return static_cast<const int64_t*>(arguments_.labels)[element];
      case DType::int32:
        return static_cast<const int32_t*>(arguments_.labels)[element];
      default:
        return static_cast<const uint8_t*>(arguments_.labels)[element];
    }
  }

  [[noreturn]] void refuse(int64_t row) const {
    throw std::out_of_range("target " + std::to_string(read(row)) + " of row " +
                            std::to_string(row) + " is not one of the " +
                            std::to_string(arguments_.length) + " classes");
  }

  const RowArguments& arguments_;
};

}  // namespace losscli::cpu
