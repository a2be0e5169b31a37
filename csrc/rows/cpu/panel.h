// A panel: a few rows side by side, the classes below each other, so that vectors hold one class of
// each row. For rows too short to fill vectors, and for such as lie side by side in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "elementwise/cpu/gather.h"
#include "rows/kernels.h"

namespace losscli::cpu {

// Rows of a panel: a few vectors, so that their operations overlap.
constexpr int kLanes = 32;

// Where the rows of a panel begin in a tensor.
struct Lanes {
  int64_t start = 0;
  int64_t stride = 0;  // from row to row; 0 where they do not lie at equal distances
  int64_t classes = 0;
  int64_t starts[kLanes] = {};

  Lanes(const RowStrides& strides, int64_t inner, int64_t first_row, int count)
      : classes(strides.element) {
    for (int lane = 0; lane < count; ++lane) starts[lane] = strides.start(first_row + lane, inner);
    start = starts[0];
    stride = count > 1 ? starts[1] - starts[0] : 1;
    for (int lane = 1; lane < count; ++lane)
      if (starts[lane] != start + lane * stride) stride = 0;
  }
};

// Between memory and a panel, whichever is the first.
template <typename From, typename To>
inline void convert_lanes(const From* from, To* to, int count) {
  if constexpr (std::is_same_v<From, To>) {
    // Of a number of bytes that compilers know: no call.
    if (count == kLanes) return void(std::memcpy(to, from, kLanes * sizeof(To)));
    std::copy_n(from, count, to);
  } else if constexpr (std::is_same_v<To, float> && std::is_same_v<From, double>) {
    narrow_run(from, to, count);
  } else if constexpr (std::is_floating_point_v<To>) {
    widen_run(from, to, count);
  } else {
    narrow_run(from, to, count);
  }
}

template <typename Stored, typename Real>
void load_panel(const void* data, const Lanes& lanes, int count, int64_t classes, Real* panel) {
  const auto* const stored = static_cast<const Stored*>(data);
  if (count < kLanes) std::fill_n(panel, classes * kLanes, Real(0));
  if (lanes.stride == 1) {
    for (int64_t c = 0; c < classes; ++c)
      convert_lanes(stored + lanes.start + c * lanes.classes, panel + c * kLanes, count);
  } else if (lanes.stride != 0) {
    Operand operand;
    operand.data = data;
    transpose(source_as<Real, Stored>(operand), lanes.start, lanes.stride, lanes.classes, count,
              classes, panel, kLanes);
  } else {
    for (int lane = 0; lane < count; ++lane)
      for (int64_t c = 0; c < classes; ++c)
        panel[c * kLanes + lane] = to_value<Real>(stored[lanes.starts[lane] + c * lanes.classes]);
  }
}

// `room` is for a panel of Stored.
template <typename Stored, typename Real>
void store_panel(const Real* panel, void* data, const Lanes& lanes, int count, int64_t classes,
                 Stored* room) {
  auto* const stored = static_cast<Stored*>(data);
  if (lanes.stride == 1) {
    for (int64_t c = 0; c < classes; ++c)
      convert_lanes(panel + c * kLanes, stored + lanes.start + c * lanes.classes, count);
  } else if (lanes.stride > 0 && lanes.classes == 1) {
    narrow_run(panel, room, classes * kLanes);
    Operand operand;
    operand.data = room;
    transpose(source_as<Stored, Stored>(operand), 0, kLanes, 1, classes, count,
              stored + lanes.start, lanes.stride);
  } else {
    for (int lane = 0; lane < count; ++lane)
      for (int64_t c = 0; c < classes; ++c)
        stored[lanes.starts[lane] + c * lanes.classes] =
            from_real<Stored>(panel[c * kLanes + lane]);
  }
}

}  // namespace losscli::cpu
