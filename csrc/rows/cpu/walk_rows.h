// Cross entropy: one row after the other, or where there are few a piece of each on every thread.
#pragma once

#include <algorithm>
#include <vector>

#include "core/cpu/parallel.h"
#include "rows/cpu/rooms.h"
#include "rows/cpu/row.h"

namespace losscli::cpu {

// A row shorter than this is walked by one thread.
constexpr int64_t kLongRow = 8 * kPiece;

// A line of memory, of which rooms for a row are made.
struct alignas(kLine) Line {
  char bytes[kLine];
};

template <typename Stored, typename Real>
Compensated whole_rows(const Call<Stored, Real>& call, const LaunchContext& context) {
  const int64_t rows = call.arguments.rows(), classes = call.arguments.length;
  const bool keeps = (call.gradient || call.transformed) &&
                     classes * static_cast<int64_t>(sizeof(Real)) <= kKeptBytes;
  const auto work = [&](std::vector<Line>& kept, int64_t first, int64_t last) {
    Row<Stored, Real> row(call, keeps ? reinterpret_cast<Real*>(kept.data()) : nullptr);
    Compensated sum;
    for (int64_t r = first; r < last; ++r) {
      row.open(r);
      if (row.is_skipped()) {
        sum.add(row.finish({}, {}));
        if (call.gradient) row.write_gradient(0, classes);
        call.put_loss(r, 0);
        continue;
      }
      if (r + 1 < rows && call.arguments.strides[0].element == 1) row.ask_ahead_for(r + 1);
      Peak<Real> peak;
      for (int64_t c = 0; c < classes; c += kPiece)
        peak.add(row.find_peak(c, std::min(classes, c + kPiece)));
      PieceSums whole;
      for (int64_t c = 0; c < classes; c += kPiece)
        whole.add(row.add_up(c, std::min(classes, c + kPiece), peak));
      const double loss = row.finish(peak, whole);
      sum.add(loss);
      call.put_loss(r, loss);
      if (call.gradient) row.write_gradient(0, classes);
    }
    end_stream();
    return sum;
  };
  // A row and a group more.
  const int64_t bytes = keeps ? (classes + kGroup) * static_cast<int64_t>(sizeof(Real)) : 0;
  return sum_chunks<std::vector<Line>>(context, rows, rows_of_chunk(rows, classes), work,
                                       divide_up(bytes, kLine));
}

// The steps of all rows one after the other, each divided among the threads in pieces.
template <typename Stored, typename Real>
Compensated rows_in_pieces(const Call<Stored, Real>& call, const LaunchContext& context) {
  const int64_t rows = call.arguments.rows(), classes = call.arguments.length;
  const int64_t pieces = divide_up(classes, kPiece);
  std::vector<Peak<Real>> peaks(rows * pieces), row_peaks(rows);
  std::vector<PieceSums> sums(rows * pieces);
  std::vector<Row<Stored, Real>> opened(rows, Row<Stored, Real>(call, nullptr));
  for (int64_t r = 0; r < rows; ++r) opened[r].open(r);
  const auto each = [&](const auto& body) {
    parallel(context, rows * pieces, [&](int64_t i) {
      const int64_t first = i % pieces * kPiece;
      body(i, i / pieces, first, std::min(classes, first + kPiece));
    });
  };
  each([&](int64_t i, int64_t r, int64_t first, int64_t last) {
    if (!opened[r].is_skipped()) peaks[i] = opened[r].find_peak(first, last);
  });
  for (int64_t i = 0; i < rows * pieces; ++i) row_peaks[i / pieces].add(peaks[i]);
  each([&](int64_t i, int64_t r, int64_t first, int64_t last) {
    if (opened[r].is_skipped()) return;
    Row<Stored, Real> row = opened[r];
    sums[i] = row.add_up(first, last, row_peaks[r]);
  });
  Compensated total;
  for (int64_t r = 0; r < rows; ++r) {
    PieceSums whole;
    for (int64_t i = r * pieces; i < (r + 1) * pieces; ++i) whole.add(sums[i]);
    const double loss = opened[r].finish(row_peaks[r], whole);
    total.add(loss);
    call.put_loss(r, loss);
  }
  if (!call.gradient) return total;
  parallel_ranges(context, rows * pieces, [&](int64_t first_piece, int64_t last_piece) {
    for (int64_t i = first_piece; i < last_piece; ++i) {
      const int64_t first = i % pieces * kPiece;
      opened[i / pieces].write_gradient(first, std::min(classes, first + kPiece));
    }
    end_stream();
  });
  return total;
}

// Leaves the sum of the rows' losses.
template <typename Stored, typename Real>
Compensated walk_rows(const Call<Stored, Real>& call, const LaunchContext& context) {
  const int64_t rows = call.arguments.rows();
  constexpr int64_t kManyRows = 64;
  const bool few = call.arguments.length >= kLongRow && rows < kManyRows &&
                   rows < count_threads(context, kManyRows);
  return few ? rows_in_pieces(call, context) : whole_rows(call, context);
}

}  // namespace losscli::cpu
