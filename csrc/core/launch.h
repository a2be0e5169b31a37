// What a launch needs of its surroundings, and how it tells what went wrong. No exception crosses
// the border of a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace losscli {

// Tables of entry points carry it: one of other sources is refused.
constexpr uint64_t kInterface = 1;

enum class StatusCode : int32_t {
  ok,
  failed,          // `message` says what and why
  out_of_memory,   // the device has none left
  failed_earlier,  // CUDA reported an error of work that was launched before
};

struct Status {
  StatusCode code = StatusCode::ok;
  char message[256] = "";

  bool ok() const { return code == StatusCode::ok; }

  static Status failure(StatusCode code, const char* message) {
    Status status;
    status.code = code;
    std::snprintf(status.message, sizeof status.message, "%s", message);
    return status;
  }
};

// What decides how a sum is finished on a GPU. The same on every GPU for the kernels to give the
// same bits wherever they can.
struct DeviceFacts {
  int32_t multiprocessors = 0;
  bool clusters = false;  // whether a cluster of kMostClusterBlocks blocks can be launched
};

// What a launch takes, asked before it: bytes of scratch memory, and whether it needs a slot of
// memory that is zero before and left zero after.
struct Needs {
  size_t workspace = 0;
  bool slot = false;
};

struct LaunchContext {
  void* stream = nullptr;     // CUDA: the cudaStream_t
  void* workspace = nullptr;  // as many bytes as were asked for
  void* slot = nullptr;       // kSlotBytes, if one was asked for
  bool clear_slot = false;    // the slot is not zero: the launch clears it first
  DeviceFacts device;         // CUDA
  // CPU: runs body(context, first, last) over [0, count) on the caller's threads.
  void (*parallel)(int64_t count, void (*body)(void*, int64_t, int64_t), void* context) = nullptr;
};

}  // namespace losscli
