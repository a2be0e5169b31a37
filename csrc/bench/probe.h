// Kernels that only move bytes: what this memory can do with so many arrays read and written is
// what a loss of the same arrays is held against. Nothing here knows a dtype.
#pragma once

#include <cstdint>
#include <cstdio>
#include <type_traits>

#include "core/launch.h"
#include "core/operand.h"

namespace losscli {

constexpr int kMostProbeReads = 4, kMostProbeWrites = 2;

// What a mix of reads and writes does: every array is read once; array w that is written takes the
// exclusive or of those read whose number is w modulo the writes, or zeros where there is none.
struct ProbeArguments {
  int64_t bytes;  // of each array
  int reads;
  int writes;
  const void* read[kMostProbeReads];
  void* write[kMostProbeWrites];
  void* never = nullptr;  // 16 bytes that would be written if it were not null: reads must not go
};

// The probe of one device: a library of its own, which exports `losscli_probe`. Which variant is
// fastest depends on the mix and the size.
struct Probe {
  int variants;
  // Fails where the launch does, or where there is no kernel for such a mix.
  Status (*run)(const ProbeArguments&, int variant, const LaunchContext&);
};

// Calls use(reads, writes), both known when it is compiled, and returns its status.
template <typename Use>
Status with_mix(const ProbeArguments& arguments, Use use) {
#define LOSSCLI_MIX(r, w)                            \
  if (arguments.reads == r && arguments.writes == w) \
  return use(std::integral_constant<int, r>(), std::integral_constant<int, w>())
  LOSSCLI_MIX(1, 0);
  LOSSCLI_MIX(2, 0);
  LOSSCLI_MIX(3, 0);
  LOSSCLI_MIX(0, 1);
  LOSSCLI_MIX(1, 1);
  LOSSCLI_MIX(2, 1);
  LOSSCLI_MIX(3, 1);
  LOSSCLI_MIX(4, 1);
  LOSSCLI_MIX(2, 2);
#undef LOSSCLI_MIX
  Status status;
  status.code = StatusCode::failed;
  std::snprintf(status.message, sizeof status.message, "no kernel reads %d arrays and writes %d",
                arguments.reads, arguments.writes);
  return status;
}

}  // namespace losscli
