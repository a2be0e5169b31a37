// A panel: a few rows side by side, the classes below each other, so that vectors hold one class of
// each row. For rows too short to fill vectors, and for such as lie side by side in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "elementwise/cpu/gather.h"
#include "rows/cpu/lanes.h"
#include "rows/cpu/strided.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// Rows of so many classes are walked in panels wherever they lie. One core, 16384 rows of float32,
// forward: of 100 classes 2.4 ms (5.6 row by row), of 200 4.3 ms (6.9).
constexpr int64_t kFewClasses = 256;

// What a panel takes at most.
constexpr int64_t kPanelBytes = int64_t{1} << 23;

// Whether panels are faster, or rows cannot be walked one by one without reading every line of
// memory many times. `bytes` are those of a panel for each of its elements.
inline bool fit_panels(const RowArguments& arguments, int64_t bytes) {
  const int64_t classes = arguments.length;
  if (arguments.rows() < kLanes / 4 || classes == 0) return false;
  if (classes <= kFewClasses) return true;
  return arguments.strides[0].element != 1 && classes * kLanes * bytes <= kPanelBytes;
}

// As rows_of_chunk(), in whole panels.
inline int64_t panel_rows_of_chunk(const RowArguments& arguments) {
  return divide_up(rows_of_chunk(arguments.rows(), arguments.length), kLanes) * kLanes;
}

// Between memory and a panel, whichever is the first.
template <typename From, typename To>
inline void convert_lanes(const From* from, To* to, int count) {
  if constexpr (std::is_same_v<From, To>) {
    if (count == kLanes) return copy_lanes(from, to);
    std::copy_n(from, count, to);
  } else if constexpr (std::is_same_v<To, float> && std::is_same_v<From, double>) {
    narrow_run(from, to, count);
  } else if constexpr (std::is_floating_point_v<To>) {
    widen_run(from, to, count);
  } else {
    narrow_run(from, to, count);
  }
}

// Of fewer classes dense rows are turned by shuffles that compilers make, of others in squares.
constexpr int64_t kManyClasses = 8;

// Element c of row `lane` is element (c, lane) of the panel.
template <int kClasses, typename Real>
void take_apart(const Real* __restrict rows, Real* __restrict panel) {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int c = 0; c < kClasses; ++c) panel[c * kLanes + lane] = rows[lane * kClasses + c];
}
template <int kClasses, typename Real>
void put_together(const Real* __restrict panel, Real* __restrict rows) {
  for (int lane = 0; lane < kLanes; ++lane)
    for (int c = 0; c < kClasses; ++c) rows[lane * kClasses + c] = panel[c * kLanes + lane];
}

// Calls use(integral constant) with the number of classes.
template <typename Use>
void with_few_classes(int64_t classes, const Use& use) {
  switch (classes) {
    case 1:
      return use(std::integral_constant<int, 1>());
    case 2:
      return use(std::integral_constant<int, 2>());
    case 3:
      return use(std::integral_constant<int, 3>());
    case 4:
      return use(std::integral_constant<int, 4>());
    case 5:
      return use(std::integral_constant<int, 5>());
    case 6:
      return use(std::integral_constant<int, 6>());
    default:
      return use(std::integral_constant<int, 7>());
  }
}

// Calls square(lane, class) for the corners of squares that cover the rows of a panel. The last
// classes may be in two of them.
template <typename Real, typename Square>
void each_square(int64_t classes, const Square& square) {
  constexpr int64_t kSide = kSquare<Real>;
  for (int lane = 0; lane < kLanes; lane += kSide)
    for (int64_t c = 0; c < classes; c += kSide) square(lane, std::min(c, classes - kSide));
}

// All rows of a panel, `stride` apart in memory: few classes are dense.
template <typename Real>
void rows_to_panel(const Real* rows, int64_t stride, int64_t classes, Real* panel) {
  if (classes < kManyClasses)
    return with_few_classes(classes, [&](auto few) { take_apart<few()>(rows, panel); });
  each_square<Real>(classes, [&](int64_t lane, int64_t c) {
    turn_square(rows + lane * stride + c, stride, panel + c * kLanes + lane, kLanes);
  });
}
template <typename Real>
void panel_to_rows(const Real* panel, int64_t classes, Real* rows, int64_t stride) {
  if (classes < kManyClasses)
    return with_few_classes(classes, [&](auto few) { put_together<few()>(panel, rows); });
  each_square<Real>(classes, [&](int64_t lane, int64_t c) {
    turn_square(panel + c * kLanes + lane, kLanes, rows + lane * stride + c, stride);
  });
}

// Whether these are all rows of a panel, each of neighbours.
inline bool are_rows(const Lanes& lanes, int count) {
  return lanes.even && lanes.element == 1 && lanes.stride > 0 && count == kLanes;
}

// Whether such rows are turned where they are.
inline bool turns_in_place(const Lanes& lanes, int64_t classes) {
  return classes >= kManyClasses || lanes.stride == classes;
}

// `room` is for a panel.
template <typename Stored, typename Real>
void load_panel(const void* data, const Lanes& lanes, int count, int64_t classes, Real* panel,
                Real* room) {
  const auto* const stored = static_cast<const Stored*>(data) + lanes.start;
  if (count < kLanes) std::fill_n(panel, classes * kLanes, Real(0));
  if (lanes.even && lanes.stride == 1) {
    for (int64_t c = 0; c < classes; ++c)
      convert_lanes(stored + c * lanes.element, panel + c * kLanes, count);
  } else if (are_rows(lanes, count)) {
    if constexpr (std::is_same_v<Stored, Real>)
      if (turns_in_place(lanes, classes))
        return rows_to_panel(stored, lanes.stride, classes, panel);
    if (lanes.stride == classes)
      widen_run(stored, room, kLanes * classes);
    else
      for (int lane = 0; lane < kLanes; ++lane)
        widen_run(stored + lane * lanes.stride, room + lane * classes, classes);
    rows_to_panel(room, classes, classes, panel);
  } else if (lanes.even && lanes.stride != 0) {
    Operand operand;
    operand.data = data;
    transpose(source_as<Real, Stored>(operand), lanes.start, lanes.stride, lanes.element, count,
              classes, panel, kLanes);
  } else {
    const auto* const all = static_cast<const Stored*>(data);
    for (int lane = 0; lane < count; ++lane)
      for (int64_t c = 0; c < classes; ++c)
        panel[c * kLanes + lane] = to_value<Real>(all[lanes.at(lane) + c * lanes.element]);
  }
}

template <typename Stored, typename Real>
void store_panel(const Real* panel, void* data, const Lanes& lanes, int count, int64_t classes,
                 Real* room) {
  auto* const stored = static_cast<Stored*>(data);
  if (lanes.even && lanes.stride == 1) {
    for (int64_t c = 0; c < classes; ++c)
      convert_lanes(panel + c * kLanes, stored + lanes.start + c * lanes.element, count);
  } else if (are_rows(lanes, count)) {
    if constexpr (std::is_same_v<Stored, Real>)
      if (turns_in_place(lanes, classes))
        return panel_to_rows(panel, classes, stored + lanes.start, lanes.stride);
    panel_to_rows(panel, classes, room, classes);
    if (lanes.stride == classes)
      narrow_run(room, stored + lanes.start, kLanes * classes);
    else
      for (int lane = 0; lane < kLanes; ++lane)
        narrow_run(room + lane * classes, stored + lanes.at(lane), classes);
  } else {
    for (int lane = 0; lane < count; ++lane)
      for (int64_t c = 0; c < classes; ++c)
        stored[lanes.at(lane) + c * lanes.element] = from_real<Stored>(panel[c * kLanes + lane]);
  }
}

// Writes zeros.
template <typename Stored>
void clear_rows(Stored* data, const Lanes& lanes, int count, int64_t classes) {
  const bool rows = lanes.element == 1;
  if (lanes.even && rows && lanes.stride == classes)
    return void(std::fill_n(data + lanes.start, count * classes, Stored{}));
  if (lanes.even && lanes.stride == 1) {
    for (int64_t c = 0; c < classes; ++c)
      std::fill_n(data + lanes.start + c * lanes.element, count, Stored{});
    return;
  }
  for (int lane = 0; lane < count; ++lane)
    for (int64_t c = 0; c < classes; ++c) data[lanes.at(lane) + c * lanes.element] = Stored{};
}

}  // namespace losscli::cpu
