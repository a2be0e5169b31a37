// The class numbers of the rows: read, checked, and what they count in a mean.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cpu/parallel.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// A sum of numbers that double holds, or whose rounding does not matter.
struct PlainSum {
  double sum = 0;

  void add(double number) { sum += number; }
  void add(const PlainSum& other) { sum += other.sum; }
  double total() const { return sum; }
};

// Checks the class numbers of the rows that count, if there are any, and returns what these rows
// count together, added in an order that does not depend on the number of threads. `counts` tells
// whether a row does, `count` what its class counts. Throws where the label of a row is no class.
template <typename Sum, typename Counts, typename Count>
double check_labels(const RowArguments& arguments, const LaunchContext& context,
                    const Counts& counts, const Count& count) {
  constexpr int64_t kRows = 4096;  // that one thread takes at a time
  const int64_t rows = arguments.rows(), chunks = divide_up(rows, kRows);
  std::vector<Sum> sums(chunks);
  std::vector<int64_t> wrong(chunks, -1);
  parallel(context, chunks, [&](int64_t chunk) {
    const int64_t last = std::min(rows, (chunk + 1) * kRows);
    for (int64_t row = chunk * kRows; row < last; ++row) {
      if (!counts(row)) continue;
      const int64_t label = arguments.labels ? read_label(arguments, row) : 0;
      if (label < 0 || label >= arguments.length) {
        wrong[chunk] = row;
        return;
      }
      sums[chunk].add(count(label));
    }
  });
  Sum total;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (const int64_t row = wrong[chunk]; row >= 0)
      throw std::out_of_range("target " + std::to_string(read_label(arguments, row)) + " of row " +
                              std::to_string(row) + " is not one of the " +
                              std::to_string(arguments.length) + " classes");
    total.add(sums[chunk]);
  }
  return total.total();
}

}  // namespace losscli::cpu
