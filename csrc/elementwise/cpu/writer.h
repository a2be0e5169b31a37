// Writes results, dense in the space, a tile at a time: past the caches where they are large, and
// in the dtype that they have in memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "elementwise/cpu/convert.h"
#include "elementwise/cpu/stream.h"
#include "elementwise/cpu/tile.h"

namespace losscli::cpu {

template <typename Value>
class Writer {
 public:
  // `data` may be null: then nothing is written.
  void open(void* data, DType dtype, int64_t size) {
    data_ = static_cast<char*>(data);
    if (!data) return;
    item_ = item_bytes(dtype);
    streamed_ = size * item_ >= kStreamBytes && can_stream(data);
    if (dtype != kDTypeOf<Value>)
      if constexpr (std::is_floating_point_v<Value>)
        with_floating_type(dtype, [&](auto stored) { store_ = store_as<decltype(stored)>; });
  }

  // Where the results of a tile that begins with element `first` are to be put.
  TileOutput<Value> place(int64_t first) {
    if (!data_) return {};
    if (store_) return {buffer_, false};
    return {reinterpret_cast<Value*>(data_) + first, streamed_};
  }

  // To be called when they are there.
  void finish(int64_t first, int64_t count) {
    if (store_) store_(buffer_, data_ + first * item_, count, streamed_);
  }

 private:
  template <typename Stored>
  static void store_as(const Value* values, char* to, int64_t count, bool streamed) {
    auto* const stored = reinterpret_cast<Stored*>(to);
    constexpr int64_t kGroup = 64;
    int64_t i = 0;
    for (; i + kGroup <= count; i += kGroup) {
      if (streamed) {
        alignas(kLine) Stored group[kGroup];
        narrow_run(values + i, group, kGroup);
        stream<kGroup * sizeof(Stored)>(group, stored + i);
      } else {
        ask_ahead<true>(stored + i, kGroup);
        narrow_run(values + i, stored + i, kGroup);
      }
    }
    if (i < count) narrow_run(values + i, stored + i, count - i);
  }

  char* data_ = nullptr;
  int item_ = 0;
  bool streamed_ = false;
  void (*store_)(const Value*, char*, int64_t, bool) = nullptr;  // null where memory holds Value
  alignas(kLine) Value buffer_[kTile];
};

}  // namespace losscli::cpu
