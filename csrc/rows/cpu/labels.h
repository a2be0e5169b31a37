// The class indices of the rows: checked, and what they count in a mean.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cpu/parallel.h"
#include "rows/cpu/lanes.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// A sum of numbers that double holds, or whose rounding does not matter.
struct PlainSum {
  double sum = 0;

  void add(double number) { sum += number; }
  void add(const PlainSum& other) { sum += other.sum; }
  double total() const { return sum; }
};

// Checks the class indices of the rows that count, if there are any, and returns what these rows
// count together, added in an order that does not depend on the number of threads. `ignores` tells
// whether a class index leaves its row out, `count` what another counts: 1 where not `weighted`.
// Throws where the label of a row is no class.
template <typename Sum, typename Ignores, typename Count>
double check_labels(const RowArguments& arguments, const LaunchContext& context, bool weighted,
                    const Ignores& ignores, const Count& count) {
  constexpr int64_t kRows = 128 * kLanes;  // that one thread takes at a time
  const int64_t rows = arguments.rows(), chunks = divide_up(rows, kRows);
  const auto classes = static_cast<uint64_t>(arguments.length);
  std::vector<Sum> sums(chunks);
  std::vector<int64_t> wrong(chunks, -1);
  parallel(context, chunks, [&](int64_t chunk) {
    const int64_t last = std::min(rows, (chunk + 1) * kRows);
    for (int64_t first = chunk * kRows; first < last; first += kLanes) {
      const RowSpan span(arguments.inner, first, last - first);
      alignas(64) int64_t buffer[kLanes] = {}, counts[kLanes];
      const int64_t* const labels =
          arguments.labels ? take_labels(arguments, span, 0, buffer) : buffer;
      for (int lane = 0; lane < kLanes; ++lane) counts[lane] = lane < span.count;
      if (arguments.mask)
        read_lanes(arguments.mask, Lanes(arguments.mask_strides, span), span.count, counts);
      int64_t total = 0, beyond = 0;
      for (int lane = 0; lane < kLanes; ++lane) {
        counts[lane] = ignores(labels[lane]) ? 0 : counts[lane];
        total += counts[lane];
        beyond += static_cast<uint64_t>(labels[lane]) >= classes ? counts[lane] : 0;
      }
      if (beyond != 0) {
        int lane = 0;
        while (counts[lane] == 0 || static_cast<uint64_t>(labels[lane]) < classes) ++lane;
        wrong[chunk] = first + lane;
        return;
      }
      if (!weighted) {
        sums[chunk].add(static_cast<double>(total));
        continue;
      }
      for (int lane = 0; lane < kLanes; ++lane)
        if (counts[lane] != 0) sums[chunk].add(count(labels[lane]));
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
