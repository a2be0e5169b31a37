// Reads an operand of any layout a tile at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "convert.h"
#include "tile.h"

namespace losscli::cpu {

template <typename Stored, typename Value = Stored>
class Reader {
 public:
  explicit Reader(const Operand& operand)
      : data_(static_cast<const Stored*>(operand.data)),
        inner_(operand.inner),
        period_(operand.period) {}

  // Return elements [first, first + count) of the iteration space, at most a tile of them, until
  // the next call: where they lie in memory just so, else in a buffer.
  const Value* take(int64_t first, int64_t count) {
    const int64_t element = (first / inner_) % period_;
    if (inner_ > 1) {
      fill(element, first % inner_, count);
      return buffer_;
    }
    if constexpr (std::is_same_v<Stored, Value>)
      if (element + count <= period_) return data_ + element;
    if (period_ <= kTile) {
      repeat();
      return buffer_ + element;
    }
    const int64_t run = std::min(period_ - element, count);
    convert(data_ + element, buffer_, run);
    convert(data_, buffer_ + run, count - run);
    return buffer_;
  }

 private:
  static void convert(const Stored* from, Value* to, int64_t count) {
    if constexpr (std::is_same_v<Stored, Value>)
      std::copy_n(from, count, to);
    else
      widen(from, to, count);
  }

  // A period and a tile behind it, once: every tile begins somewhere in the first period.
  void repeat() {
    if (repeated_) return;
    repeated_ = true;
    convert(data_, buffer_, period_);
    for (int64_t done = period_; done < period_ + kTile; done += done)
      std::copy_n(buffer_, std::min(done, period_ + kTile - done), buffer_ + done);
  }

  void fill(int64_t element, int64_t within, int64_t count) {
    for (int64_t done = 0; done < count;) {
      const int64_t run = std::min(inner_ - within, count - done);
      Value value;
      convert(data_ + element, &value, 1);
      std::fill_n(buffer_ + done, run, value);
      done += run;
      within = 0;
      if (++element == period_) element = 0;
    }
  }

  const Stored* data_;
  int64_t inner_;
  int64_t period_;
  bool repeated_ = false;
  alignas(64) Value buffer_[2 * kTile];
};

}  // namespace losscli::cpu
