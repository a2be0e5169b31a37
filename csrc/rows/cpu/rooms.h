// What each thread needs for its part of the work, made before it begins: an exception must not
// leave a thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>

#include "core/cpu/parallel.h"

namespace losscli::cpu {

// How many threads the parts of some work are divided among.
inline int64_t count_threads(const LaunchContext& context, int64_t parts) {
  std::atomic<int64_t> ranges{0};
  parallel_ranges(context, parts, [&](int64_t, int64_t) { ++ranges; });
  return ranges;
}

template <typename Room>
class Rooms {
 public:
  // One for each thread, made of `arguments`.
  template <typename... Arguments>
  Rooms(const LaunchContext& context, int64_t parts, const Arguments&... arguments) {
    const int64_t threads = count_threads(context, parts);
    for (int64_t i = 0; i < threads; ++i) rooms_.emplace_back(arguments...);
  }

  // A room that no other thread has; called once for each range of the parts.
  Room& take() { return rooms_[taken_++]; }

 private:
  std::deque<Room> rooms_;
  std::atomic<size_t> taken_{0};
};

}  // namespace losscli::cpu
