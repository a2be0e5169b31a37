// Takes elements of an operand of any dtype and layout into a buffer of Value, in the order of the
// space: along rows, or in blocks where the operand lies across them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "elementwise/cpu/convert.h"
#include "elementwise/cpu/stream.h"
#include "elementwise/cpu/transpose.h"
#include "elementwise/cpu/walk.h"

namespace losscli::cpu {

template <typename Value, typename Stored>
void take_run(const void* from, Value* to, int64_t count) {
  constexpr int64_t kGroup = 64;
  const auto* const stored = static_cast<const Stored*>(from);
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    ask_ahead<false>(stored + i, kGroup);
    widen_run(stored + i, to + i, kGroup);
  }
  for (; i < count; ++i) to[i] = to_value<Value>(stored[i]);
}

// Vectors gain nothing here, and cost seconds to compile: a cold function has none.
template <typename Value, typename Stored>
__attribute__((cold)) void take_strided(const void* from, int64_t stride, Value* to,
                                        int64_t count) {
  const auto* stored = static_cast<const Stored*>(from);
  for (int64_t i = 0; i < count; ++i, stored += stride) to[i] = to_value<Value>(*stored);
}

// For dtypes that are rare, without vectors too: one conversion a cycle is about what memory gives.
template <typename Value, typename Stored>
__attribute__((cold)) void take_rare_run(const void* from, Value* to, int64_t count) {
  take_strided<Value, Stored>(from, 1, to, count);
}

template <typename Stored>
constexpr bool kRare = std::is_integral_v<Stored> && !std::is_same_v<Stored, int64_t>;

template <typename Value, typename Stored>
Source<Value> source_as(const Operand& operand) {
  Source<Value> source;
  source.data = static_cast<const char*>(operand.data);
  source.item = sizeof(Stored);
  source.is_value = std::is_same_v<Stored, Value>;
  if constexpr (kRare<Stored>)
    source.run = take_rare_run<Value, Stored>;
  else
    source.run = take_run<Value, Stored>;
  source.strided = take_strided<Value, Stored>;
  return source;
}

// Half and bfloat16 are taken as they are, or as float or double.
template <typename Value>
Source<Value> source_of(const Operand& operand) {
  if constexpr (std::is_floating_point_v<Value>)
    return with_type(operand.dtype,
                     [&](auto stored) { return source_as<Value, decltype(stored)>(operand); });
  else
    return source_as<Value, Value>(operand);
}

// Elements [first, first + count) of the space.
template <typename Value>
void gather_rows(const Source<Value>& source, const Walk& walk, int64_t first, int64_t count,
                 Value* to) {
  const int64_t stride = walk.strides[0];
  Cursor cursor(walk, first);
  for (int64_t done = 0; done < count;) {
    const int64_t run = std::min(cursor.left(), count - done);
    const char* const from = source.at(cursor.offset());
    if (stride == 1) {
      source.run(from, to + done, run);
    } else if (stride == 0) {
      Value value;
      source.run(from, &value, 1);
      std::fill_n(to + done, run, value);
    } else {
      source.strided(from, stride, to + done, run);
    }
    done += run;
    if (done < count) cursor.next_row();
  }
}

// Units [first, last) of the space, a unit being all of the dimensions below `across`, along which
// the operand's neighbours lie.
template <typename Value>
void gather_across(const Source<Value>& source, const Walk& walk, int across, int64_t first,
                   int64_t last, Value* to) {
  Walk outer;  // the dimensions from `across` on
  outer.dimensions = walk.dimensions - across;
  std::copy_n(walk.sizes + across, outer.dimensions, outer.sizes);
  std::copy_n(walk.strides + across, outer.dimensions, outer.strides);
  Walk middle;  // those between the fastest and `across`
  middle.dimensions = std::max(across - 1, 1);
  std::copy_n(walk.sizes + 1, across - 1, middle.sizes);
  std::copy_n(walk.strides + 1, across - 1, middle.strides);
  int64_t rows = 1;
  for (int d = 1; d < across; ++d) rows *= walk.sizes[d];
  const int64_t columns = walk.sizes[0], unit = columns * rows;

  Cursor cursor(outer, first);
  for (int64_t done = 0; done < last - first;) {
    const int64_t run = std::min(cursor.left(), last - first - done);
    for (int64_t row = 0; row < rows; ++row) {
      const Cursor within(middle, row);
      transpose(source, cursor.offset() + within.offset(), walk.strides[0], walk.strides[across],
                columns, run, to + done * unit + row * columns, unit);
    }
    done += run;
    if (done < last - first) cursor.next_row();
  }
}

}  // namespace losscli::cpu
