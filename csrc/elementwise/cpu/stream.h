// Memory traffic that the processor does not arrange by itself: asking for lines ahead, and stores
// that go past the caches.
#pragma once

#include <cstdint>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "core/cpu/prefetch.h"

namespace losscli::cpu {

// From so many bytes an output goes past the caches, which it would leave before anyone reads it,
// and is not read before it is written. Two cores, smooth L1 with its gradient, float32: 256 MiB
// take 23.4 ms (28.8 through the caches), 32 MiB 3.3 ms (4.4), 16 MiB 1.26 ms (1.36); 8 MiB are
// faster through the caches, 0.39 ms (0.45).
constexpr int64_t kStreamBytes = int64_t{1} << 25;

// Asks for the lines that lie so many bytes ahead of `count` elements.
template <bool kWrite, typename Stored>
inline __attribute__((always_inline)) void ask(const Stored* elements, int64_t count,
                                               int64_t ahead) {
  const char* bytes = reinterpret_cast<const char*>(elements) + ahead;
  for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(Stored)); i += kLine)
    __builtin_prefetch(bytes + i, kWrite);
}

template <bool kWrite, typename Stored>
inline __attribute__((always_inline)) void ask_ahead(const Stored* elements, int64_t count) {
  ask<kWrite>(elements, count, kWrite ? kWriteAhead : kReadAhead);
}

#ifdef __AVX__
// Whether a pointer may be streamed to.
inline bool can_stream(const void* data) { return reinterpret_cast<uintptr_t>(data) % kLine == 0; }

// Copies whole lines; `to` begins one.
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
