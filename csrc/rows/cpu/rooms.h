// Rows divided among threads in chunks, whose sums are added.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>

#include "core/cpu/parallel.h"
#include "core/operand.h"
#include "reduce/cpu/partial_sums.h"

namespace losscli::cpu {

// How many threads the parts of some work are divided among.
inline int64_t count_threads(const LaunchContext& context, int64_t parts) {
  std::atomic<int64_t> ranges{0};
  parallel_ranges(context, parts, [&](int64_t, int64_t) { ++ranges; });
  return ranges;
}

// The sum of what work(room, first, last) gives of the rows of each chunk, of `size` rows, added in
// the order of the chunks. Each thread has a room of its own. It is made of `arguments` before the
// work begins: an exception must not leave a thread.
template <typename Room, typename Work, typename... Arguments>
Compensated sum_chunks(const LaunchContext& context, int64_t rows, int64_t size, const Work& work,
                       const Arguments&... arguments) {
  const int64_t chunks = divide_up(rows, size), threads = count_threads(context, chunks);
  std::deque<Room> rooms;
  for (int64_t i = 0; i < threads; ++i) rooms.emplace_back(arguments...);
  std::atomic<size_t> taken{0};
  PartialSums sums(chunks);
  parallel_ranges(context, chunks, [&](int64_t first, int64_t last) {
    Room& room = rooms[taken++];
    for (int64_t chunk = first; chunk < last; ++chunk)
      sums.put(chunk, work(room, chunk * size, std::min(rows, (chunk + 1) * size)));
  });
  return sums.total();
}

}  // namespace losscli::cpu
