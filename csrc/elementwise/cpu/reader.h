// Reads an operand of any dtype and layout a tile at a time, as values of one type. Compiled in
// reader.cpp.
#pragma once

#include <cstdlib>

#include "core/operand.h"
#include "elementwise/cpu/tile.h"
#include "elementwise/cpu/walk.h"

namespace losscli::cpu {

template <typename Value>
class Reader {
 public:
  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { std::free(band_); }

  // `in_order` says that the tiles will be taken one after the other, so that what is read ahead is
  // used.
  void open(const Operand& operand, const Space& space, bool in_order);

  // Returns elements [first, first + count) of the space, at most a tile of them, until the next
  // call: where they lie in memory just so, else in a buffer.
  const Value* take(int64_t first, int64_t count);

 private:
  const Value* in_memory(int64_t element) const {
    return reinterpret_cast<const Value*>(source_.data) + element;
  }
  const Value* convert(int64_t first, int64_t count);
  void fill_repeats();

  // A band: units of the space, a unit being all dimensions below the one along which the operand's
  // neighbours lie.
  void find_band(int64_t size);
  bool holds(int64_t first, int64_t count) const {
    return first >= band_first_ && first + count <= band_last_;
  }
  void load_band(int64_t first, int64_t count);

  Source<Value> source_;
  Walk walk_;
  bool direct_ = false;   // whether a run of elements is a run of Value in memory
  bool repeats_ = false;  // whether the buffer holds all that there is
  int64_t period_ = 1;

  int across_ = 0;
  int64_t unit_ = 1;
  int64_t band_units_ = 0;  // 0 where nothing is read in bands
  int64_t total_units_ = 0;
  int64_t band_first_ = 0, band_last_ = 0;
  Value* band_ = nullptr;

  alignas(64) Value buffer_[2 * kTile];
};

}  // namespace losscli::cpu
