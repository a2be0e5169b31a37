// A launch on the CPU: work divided among the caller's threads, and a status for what it throws.
#pragma once

#include <cstdint>
#include <exception>
#include <new>

#include "core/launch.h"

namespace losscli::cpu {

// Calls body(first, last) on each thread for its part of [0, count). The body must not throw.
template <typename Body>
void parallel_ranges(const LaunchContext& context, int64_t count, const Body& body) {
  if (count <= 0) return;
  if (count == 1 || !context.parallel) return body(int64_t{0}, count);
  context.parallel(
      count,
      [](void* opaque, int64_t first, int64_t last) {
        (*static_cast<const Body*>(opaque))(first, last);
      },
      const_cast<Body*>(&body));
}

// Calls body(i) for each i of [0, count).
template <typename Body>
void parallel(const LaunchContext& context, int64_t count, const Body& body) {
  parallel_ranges(context, count, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i);
  });
}

// Turns what a launch may throw into a status.
template <typename Launch>
Status guarded(Launch launch) {
  try {
    launch();
    return {};
  } catch (const std::bad_alloc&) {
    return Status::failure(StatusCode::out_of_memory, "no memory for the sums of its parts");
  } catch (const std::exception& error) {
    return Status::failure(StatusCode::failed, error.what());
  } catch (...) {
    return Status::failure(StatusCode::failed, "an unknown error");
  }
}

}  // namespace losscli::cpu
