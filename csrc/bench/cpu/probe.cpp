// Moves bytes a cache line at a time, with ordinary stores and with such as bypass the caches.
#include "bench/probe.h"

#include <algorithm>
#include <cstdint>

#include "core/cpu/parallel.h"
#include "core/cpu/prefetch.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace losscli {
namespace {

using cpu::kLine;
using cpu::kReadAhead;
using cpu::kWriteAhead;

struct Shape {
  bool stream;    // stores that bypass the caches, where the processor has them
  int64_t chunk;  // bytes of each array that one thread takes at a time
};

// Little and much for one thread: what is worth waking a second one for is the machine's to say.
constexpr Shape kShapes[] = {{false, 1 << 16}, {false, 1 << 20}, {true, 1 << 16}, {true, 1 << 20}};

// What one register holds, so that a line is a few of them. GCC takes wider vectors apart in
// memory.
#if defined(__AVX__)
constexpr int64_t kWord = 32;
#else
constexpr int64_t kWord = 16;
#endif
typedef uint64_t Word __attribute__((vector_size(kWord)));

inline Word load(const char* from) {
  Word word;
  __builtin_memcpy(&word, from, kWord);
  return word;
}

template <bool kStream>
inline void store(char* to, Word word) {
#if defined(__AVX__)
  if constexpr (kStream) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)word);
#elif defined(__SSE2__)
  if constexpr (kStream) return _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)word);
#endif
  __builtin_memcpy(to, &word, kWord);
}

// The bytes [first, last) of a mix.
template <int kReads, int kWrites, bool kStream>
void move(const ProbeArguments& arguments, int64_t first, int64_t last) {
  const char* read[kReads + 1] = {};
  char* write[kWrites + 1] = {};
  for (int r = 0; r < kReads; ++r) read[r] = static_cast<const char*>(arguments.read[r]);
  for (int w = 0; w < kWrites; ++w) write[w] = static_cast<char*>(arguments.write[w]);
  Word folded{};
  int64_t at = first;
  for (; at + kLine <= last; at += kLine) {
    for (int r = 0; r < kReads; ++r) __builtin_prefetch(read[r] + at + kReadAhead);
    for (int w = 0; w < kWrites && !kStream; ++w)
      __builtin_prefetch(write[w] + at + kWriteAhead, 1);
    for (int64_t part = at; part < at + kLine; part += kWord) {
      Word words[kReads + 1];
      for (int r = 0; r < kReads; ++r) words[r] = load(read[r] + part);
      for (int r = 0; r < kReads && kWrites == 0; ++r) folded ^= words[r];
      for (int w = 0; w < kWrites; ++w) {
        Word out{};
        for (int r = w; r < kReads; r += kWrites) out ^= words[r];
        store<kStream>(write[w] + part, out);
      }
    }
  }
  char rest = 0;
  for (; at < last; ++at) {
    for (int r = 0; r < kReads && kWrites == 0; ++r) rest ^= read[r][at];
    for (int w = 0; w < kWrites; ++w) {
      char out = 0;
      for (int r = w; r < kReads; r += kWrites) out ^= read[r][at];
      write[w][at] = out;
    }
  }
#if defined(__SSE2__)
  if constexpr (kStream) _mm_sfence();
#endif
  // Nobody looks, but the compiler cannot know: the reads have to take place.
  volatile uint64_t seen = rest;
  for (size_t i = 0; i < kWord / sizeof(uint64_t); ++i) seen = seen ^ folded[i];
}

template <int kReads, int kWrites>
Status run_mix(const ProbeArguments& arguments, const Shape& shape, const LaunchContext& context) {
  const auto aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % kLine == 0;
  };
  const bool stream =
      shape.stream && std::all_of(arguments.write, arguments.write + kWrites, aligned);
  const auto move_range = stream ? move<kReads, kWrites, true> : move<kReads, kWrites, false>;
  cpu::parallel_ranges(
      context, divide_up(arguments.bytes, shape.chunk), [&](int64_t first, int64_t last) {
        move_range(arguments, first * shape.chunk, std::min(last * shape.chunk, arguments.bytes));
      });
  return {};
}

Status run(const ProbeArguments& arguments, int variant, const LaunchContext& context) {
  return with_mix(arguments, [&](auto reads, auto writes) {
    return run_mix<reads(), writes()>(arguments, kShapes[variant], context);
  });
}

const Probe probe{sizeof(kShapes) / sizeof(kShapes[0]), run};

}  // namespace
}  // namespace losscli

LOSSCLI_EXPORT const losscli::Probe* losscli_probe() { return &losscli::probe; }
