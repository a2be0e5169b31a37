// Cross entropy: one row after the other, or where there are few a piece of each on every thread.
#pragma once

#include <algorithm>
#include <vector>

#include "core/cpu/parallel.h"
#include "reduce/cpu/partial_sums.h"
#include "rows/cpu/rooms.h"
#include "rows/cpu/row.h"

namespace losscli::cpu {

// A row shorter than this is walked by one thread.
constexpr int64_t kLongRow = 8 * kPiece;

inline int64_t pieces_of(int64_t classes) { return divide_up(classes, kPiece); }

// Room for a row and a group more, at the beginning of a line.
template <typename Real>
class Kept {
 public:
  explicit Kept(int64_t classes) : memory_(classes + kGroup + kLine / sizeof(Real)) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    data_ = reinterpret_cast<Real*>((address + kLine - 1) / kLine * kLine);
  }
  Real* data() { return data_; }

 private:
  std::vector<Real> memory_;
  Real* data_;
};

template <typename Stored, typename Real>
Compensated whole_rows(const Call<Stored, Real>& call, const LaunchContext& context) {
  const int64_t rows = call.arguments.rows(), classes = call.arguments.length;
  const int64_t size = rows_of_chunk(rows, classes), chunks = divide_up(rows, size);
  const bool keeps = (call.gradient || call.transformed) &&
                     classes * static_cast<int64_t>(sizeof(Real)) <= kKeptBytes;
  Rooms<Kept<Real>> rooms(context, chunks, keeps ? classes : 0);
  PartialSums sums(chunks);
  parallel_ranges(context, chunks, [&](int64_t first_chunk, int64_t last_chunk) {
    Kept<Real>& kept = rooms.take();
    Row<Stored, Real> row(call, keeps ? kept.data() : nullptr);
    for (int64_t chunk = first_chunk; chunk < last_chunk; ++chunk) {
      Compensated sum;
      const int64_t last = std::min(rows, (chunk + 1) * size);
      for (int64_t r = chunk * size; r < last; ++r) {
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
      sums.put(chunk, sum);
    }
    end_stream();
  });
  return sums.total();
}

// The steps of all rows one after the other, each divided among the threads in pieces.
template <typename Stored, typename Real>
Compensated rows_in_pieces(const Call<Stored, Real>& call, const LaunchContext& context) {
  const int64_t rows = call.arguments.rows(), classes = call.arguments.length;
  const int64_t pieces = pieces_of(classes);
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
