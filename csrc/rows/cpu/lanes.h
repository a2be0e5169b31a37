// Rows side by side in vectors: where they begin in memory, and their class indices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "elementwise/cpu/convert.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// Rows that are computed side by side: a few vectors, so that their operations overlap.
constexpr int kLanes = 32;

// Rows that follow each other, at most kLanes.
struct RowSpan {
  int64_t first;
  int count;
  int64_t inner;   // rows of the inner dimension
  int64_t outer;   // where the first row is in the outer dimension
  int64_t within;  // and in the inner one

  RowSpan(int64_t inner_rows, int64_t first_row, int64_t rows)
      : first(first_row),
        count(static_cast<int>(std::min<int64_t>(rows, kLanes))),
        inner(inner_rows),
        outer(inner_rows == 1 ? first_row : first_row / inner_rows),
        within(inner_rows == 1 ? 0 : first_row % inner_rows) {}

  // Whether the rows are one behind the other in one dimension.
  bool straight() const { return inner == 1 || within + count <= inner; }
};

// Where the rows of a span begin in a tensor.
struct Lanes {
  bool even;               // whether they lie at equal distances
  int64_t start;           // of the first
  int64_t stride;          // from row to row, if so
  int64_t element;         // from element to element
  int64_t starts[kLanes];  // if not

  Lanes(const RowStrides& strides, const RowSpan& rows)
      : even(rows.straight()),
        start(rows.outer * strides.outer + rows.within * strides.inner),
        stride(rows.inner == 1 ? strides.outer : strides.inner),
        element(strides.element) {
    for (int lane = 0; !even && lane < rows.count; ++lane)
      starts[lane] = strides.start(rows.first + lane, rows.inner);
  }

  int64_t at(int lane) const { return even ? start + lane * stride : starts[lane]; }
};

// Of a number of bytes that compilers know: no call.
template <typename Number>
void copy_lanes(const Number* from, Number* to) {
  std::memcpy(to, from, kLanes * sizeof(Number));
}

// A number of each row.
template <typename Number, typename Stored>
void read_lanes(const Stored* data, const Lanes& lanes, int count, Number* to) {
  if (lanes.even && lanes.stride == 1)
    for (int lane = 0; lane < count; ++lane) to[lane] = to_value<Number>(data[lanes.start + lane]);
  else
    for (int lane = 0; lane < count; ++lane) to[lane] = to_value<Number>(data[lanes.at(lane)]);
}

// The class indices of rows: where they are in memory, or in the buffer, of which the rest is
// `padding`.
inline const int64_t* take_labels(const RowArguments& arguments, const RowSpan& rows,
                                  int64_t padding, int64_t* buffer) {
  const Lanes lanes(arguments.label_strides, rows);
  const auto* const wide = static_cast<const int64_t*>(arguments.labels);
  const bool is_wide = arguments.labels_dtype == DType::int64;
  if (is_wide && lanes.even && lanes.stride == 1 && rows.count == kLanes) return wide + lanes.start;
  std::fill_n(buffer, kLanes, padding);
  if (is_wide)
    read_lanes(wide, lanes, rows.count, buffer);
  else if (arguments.labels_dtype == DType::int32)
    read_lanes(static_cast<const int32_t*>(arguments.labels), lanes, rows.count, buffer);
  else
    read_lanes(static_cast<const uint8_t*>(arguments.labels), lanes, rows.count, buffer);
  return buffer;
}

}  // namespace losscli::cpu
