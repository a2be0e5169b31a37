// Reads operands where they lie, row by row, or in bands.
#include "elementwise/cpu/reader.h"

#include <algorithm>

#include "elementwise/cpu/gather.h"

namespace losscli::cpu {
namespace {

// Bytes of a band as Value, with which it fits a second-level cache, and elements that one may have
// at most where its rows are long.
constexpr int64_t kBandBytes = int64_t{1} << 19, kMostBand = int64_t{1} << 20;

}  // namespace

template <typename Value>
void Reader<Value>::open(const Operand& operand, const Space& space, bool in_order) {
  source_ = source_of<Value>(operand);
  walk_ = Walk(operand, space);
  direct_ = source_.is_value && (walk_.strides[0] == 1 || walk_.dense());
  period_ = walk_.period();
  repeats_ = period_ <= kTile && period_ < space.size;
  if (repeats_)
    fill_repeats();
  else if (in_order)
    find_band(space.size);
}

template <typename Value>
const Value* Reader<Value>::take(int64_t first, int64_t count) {
  if (walk_.dimensions == 1 && direct_) return in_memory(first);
  if (repeats_) return buffer_ + first % period_;
  if (band_units_ > 0) {
    if (!holds(first, count)) load_band(first, count);
    if (holds(first, count)) return band_ + (first - band_first_);
  }
  if (direct_) {
    const Cursor cursor(walk_, first);
    if (count <= cursor.left()) return in_memory(cursor.offset());
  }
  return convert(first, count);
}

template <typename Value>
const Value* Reader<Value>::convert(int64_t first, int64_t count) {
  gather_rows(source_, walk_, first, count, buffer_);
  return buffer_;
}

// A period and a tile behind it: every tile begins somewhere in the first period.
template <typename Value>
void Reader<Value>::fill_repeats() {
  convert(0, period_);
  for (int64_t done = period_; done < period_ + kTile; done += done)
    std::copy_n(buffer_, std::min(done, period_ + kTile - done), buffer_ + done);
}

// Whether the operand's neighbours lie along another dimension than the fastest, so far apart that
// a row would take one element of each line: then whole bands are read at once.
template <typename Value>
void Reader<Value>::find_band(int64_t size) {
  const auto apart = [&](int d) { return std::abs(walk_.strides[d]); };
  int across = 0;
  for (int d = 1; d < walk_.dimensions; ++d)
    if (walk_.strides[d] != 0 && apart(d) < apart(across)) across = d;
  if (across == 0 || apart(0) * source_.item < kLine) return;
  int64_t unit = 1;
  for (int d = 0; d < across; ++d) unit *= walk_.sizes[d];
  const int64_t line = std::max<int64_t>(kLine / source_.item, kBlock<Value>);
  const int64_t fitting = kBandBytes / static_cast<int64_t>(sizeof(Value)) / unit;
  const int64_t units = std::min(std::max<int64_t>(fitting / line, 1) * line, kMostBand / unit);
  if (units < 2) return;
  across_ = across;
  unit_ = unit;
  band_units_ = units;
  total_units_ = size / unit;
}

// Reads a band that begins with the unit of `first`, and ends where a line of memory ends. Where
// there is no memory for it, nothing is held.
template <typename Value>
void Reader<Value>::load_band(int64_t first, int64_t count) {
  if (!band_) {
    const auto bytes = static_cast<int64_t>(sizeof(Value)) * band_units_ * unit_;
    band_ = static_cast<Value*>(std::aligned_alloc(kLine, divide_up(bytes, kLine) * kLine));
    if (!band_) return;
  }
  const int64_t begin = first / unit_, least = divide_up(first + count, unit_);
  int64_t end = begin + band_units_ - begin % walk_.sizes[across_] % band_units_;
  if (end < least) end = begin + band_units_;
  end = std::min(end, total_units_);
  if (end < least) return;
  gather_across(source_, walk_, across_, begin, end, band_);
  band_first_ = begin * unit_;
  band_last_ = end * unit_;
}

template class Reader<float>;
template class Reader<double>;
template class Reader<Half>;
template class Reader<BFloat16>;

}  // namespace losscli::cpu
