// Stores that go past the caches.
#pragma once

#include <cstdint>

#ifdef __AVX__
#include <immintrin.h>
#endif

namespace losscli::cpu {

constexpr int64_t kLine = 64;

#ifdef __AVX__
// Whether a pointer may be streamed to.
inline bool can_stream(const void* data) { return reinterpret_cast<uintptr_t>(data) % kLine == 0; }

// Copy whole lines; `to` begins one.
template <int64_t kBytes>
inline void stream(const void* from, void* to) {
  static_assert(kBytes % kLine == 0);
  for (int64_t i = 0; i < kBytes / 32; ++i)
    _mm256_stream_si256(static_cast<__m256i*>(to) + i,
                        _mm256_loadu_si256(static_cast<const __m256i*>(from) + i));
}

// To be called by the thread that streamed before another one may look.
inline void end_stream() { _mm_sfence(); }
#else
inline bool can_stream(const void*) { return false; }

template <int64_t kBytes>
inline void stream(const void*, void*) {}

inline void end_stream() {}
#endif

}  // namespace losscli::cpu
