// The shapes of launches that were found by measuring, apart from the kernels that use them. Where
// a pass sums, none depends on the GPU at hand: the shape of a launch decides the order in which a
// sum is taken, and the same shape of input is to give the same bits everywhere.
#pragma once

#include <cstdint>

#include "core/platform.h"
#include "core/runtime.h"

namespace losscli::cuda {

// How a pass is divided among blocks.
struct LaunchPolicy {
  int threads;     // of a block
  int loads;       // loads in flight of each operand and thread, of 16 bytes where they are packs
  int resident;    // blocks a multiprocessor is to hold at least: bounds the registers
  int64_t blocks;  // at most; beyond, a block takes more tiles
  int each = 1;    // tiles that a block takes, but for the last
  bool past_first_level = false;  // reads past the first level of the cache
  bool row_ahead = false;         // reads a row that repeats along with the input, not after it
};

// The policy of small tensors and that of large ones, from so many bytes of the first operand on.
struct Policies {
  LaunchPolicy small;
  LaunchPolicy large;
  int64_t large_bytes;
};

// Blocks of a grid, so that one more group takes the sums of the groups: 2^32 elements of float32
// where each block takes a tile.
constexpr int64_t kMostBlocks = int64_t{kGroup} * kGroup;

// Elements of a row that repeats, so that its packs, twice round, are counted in 32 bits.
constexpr int64_t kMostRow = int64_t{1} << 31;

// What one block takes by a kernel of its own.
constexpr int kFewElements = 1024;

// The times below: H200, microseconds at 2^20 / 2^24 / 2^28 / 2^30 elements, cold, of kernels alone
// in a sweep over 128, 256 and 512 threads, 2, 4 and 8 loads, 512 to 2,048 threads a
// multiprocessor, and 1 wave of blocks to one tile a block. Policies within 1 % of the best are as
// good as it. Beside them, behind the bar, what kernels need that only move the bytes.

// Reads only. Small tensors in one wave, in which a place is left to the block that collects, and
// past the first level of the cache: 2^24 elements of float32 take 45 through it. Large ones
// through it. Smooth L1, float32: 9.7 / 41.2 / 479 / 1,875 | 7.6 / 42 / 476 / 1,865; bfloat16: 8.5
// / 25.0 / 248 / 946 | 6.6 / 25.5 / 245 / 940.
constexpr Policies kReadFlat{
    {512, 2, 3, 132 * 2 - 1, 1, true}, {512, 4, 2, 132 * 64}, int64_t{1} << 28};

// The same with one row that repeats for a target, which comes from the first level of the cache:
// where the input goes through it too, the row is read just before it is used. Hinge, float32: 8.4
// / 24.5 / 248 / 948 | 6.4 / 25.1 / 245 / 939.
constexpr Policies kReadRows{
    {512, 2, 3, 132 * 3 - 1, 1, true, true}, {256, 8, 2, 132 * 64}, int64_t{1} << 29};
// In 16 bits, which take twice the instructions a byte, with less in flight for each of twice the
// threads. float16: 7.5 / 16.2 / 133 / 485 | 5.6 / 15.4 / 129 / 477; as in 32 bits 138 / 485.
constexpr Policies kReadRows16{
    {512, 2, 3, 132 * 3 - 1, 1, true, true}, {256, 4, 4, 132 * 64}, int64_t{1} << 29};

// In 64 bits, whose compensated sums take registers, with twice as much in flight for each of fewer
// threads: 2^20 elements are still one wave.
constexpr Policies kReadFlat64{
    {512, 4, 2, 132 * 2 - 1, 1, true}, {512, 4, 2, 132 * 64}, int64_t{1} << 28};
constexpr Policies kReadRows64{
    {512, 4, 2, 132 * 2 - 1, 1, true, true}, {256, 8, 2, 132 * 64}, int64_t{1} << 29};

// Reads and writes. Large tensors with much in flight for each thread and more blocks than fit at a
// time: the order in which they come keeps all at neighbouring places of the memory. Smooth L1 with
// its gradient, float32: 10.4 / 57 / 740 / 2,917 | 749 / 2,976 at 2^28 / 2^30; one wave at 2^30:
// 3,130.
constexpr Policies kWriteFlat{{512, 2, 3, 132 * 3 - 1}, {512, 8, 1, kMostBlocks}, int64_t{1} << 29};
// In 16 bits: 9.0 / 34 / 380 / 1,474 | 378 / 1,492; with one tile a block 1,526 at 2^30, and with
// registers for 3 blocks a multiprocessor, not 2, the small ones take half as long again.
constexpr Policies kWriteFlat16{
    {512, 2, 2, 132 * 2 - 1}, {512, 8, 1, kMostBlocks, 2}, int64_t{1} << 29};

// The same with a row that repeats. How many tiles a block takes is what matters here, whatever the
// size: 520 and 2,051 with 4 of them, 526 and 2,082 with 8. Hinge with its gradient, float32: 9.0 /
// 40.7 / 518 / 2,040 | 523 / 2,075 at 2^28 / 2^30.
constexpr Policies kWriteRows{{512, 2, 3, 132 * 3 - 1, 1, true, true},
                              {512, 8, 1, kMostBlocks, 3, false, true},
                              int64_t{1} << 29};
// In 16 bits, with half the registers and so twice the threads. bfloat16: 8.2 / 24.5 / 267 / 1,038
// | 265 / 1,042; with 8 tiles 270 and 1,045, with 128 threads and 8 tiles 273 and 1,055.
constexpr Policies kWriteRows16{{512, 2, 2, 132 * 2 - 1, 1, true, true},
                                {512, 4, 2, kMostBlocks, 4, false, true},
                                int64_t{1} << 29};

// Large tensors of three operands or more, with half of these loads of each, costly or not. Reads
// and writes, 2^28 elements, H200: mean squared error with a weight 964 (one tile of eight packs a
// thread: 1,003; four tiles: 970), in bfloat16 488 (522), in float64 1,917 (2,096), Gaussian 970
// (1,259).
constexpr LaunchPolicy kWriteMany{512, 4, 2, kMostBlocks, 2};
// With a row that repeats: cross entropy with a weight for positive targets 757 (512 threads: 826),
// Gaussian 756 (810), squared error 751 (742), in bfloat16 381 (383).
constexpr LaunchPolicy kWriteManyRows{256, 8, 3, kMostBlocks, 4, false, true};

// Large tensors of a loss that is costly: instructions count as much as bytes, so more threads with
// less in flight for each, and code that stays in the cache. Reads, 2^28 elements, H200: binary
// cross entropy 507 and with logits 485, where a thread that takes four packs at a time has 538 and
// 486; in bfloat16 286 and 305, in float64 bound by its exponentials.
constexpr LaunchPolicy kReadCostly{256, 2, 6, 132 * 64};
constexpr LaunchPolicy kReadCostly64{256, 4, 3, 132 * 64};
// Reads and writes, with a few tiles a block, for the code before and after them. Cross entropy
// with logits 753 (one tile of eight packs a thread: 1,007), log-cosh 759 (1,015), Poisson 752
// (1,131); in bfloat16 437 (537); Kullback-Leibler divergence in float64 1,575 (2,133).
constexpr LaunchPolicy kWriteCostly{256, 2, 5, kMostBlocks, 4};
constexpr LaunchPolicy kWriteCostly16{256, 4, 4, kMostBlocks, 4};
constexpr LaunchPolicy kWriteCostly64{256, 4, 3, kMostBlocks, 4};

// What is neither the sum of a loss nor the gradients alone.
constexpr Policies kPlain{{512, 2, 1, 132 * 3 - 1}, {512, 2, 1, 132 * 64}, int64_t{1} << 29};

// The gradients alone, for one upstream gradient: two blocks of 64 registers a thread on each
// multiprocessor, with as much in flight as writing passes have; of small tensors, so that all
// multiprocessors have some, four of half the threads with half as much.
constexpr Policies kGradients{{256, 2, 4, 132 * 64}, {512, 4, 2, kMostBlocks, 2}, int64_t{1} << 27};

// A backward whose gradients may have been written ahead launches as many blocks as fit on the
// device at a time, so many times over: few, so that finding nothing to do does not grow with the
// tensor, and no fraction of a round, in which most of the device would wait for the rest.
constexpr int kCheckRounds = 2;
// What the device holds at a time takes 5.0 us to find nothing to do, a quarter of it 3.1.
constexpr int kCheckShare = 4;
constexpr int kMostThreads = 2048;  // of a multiprocessor

// Operands with strides, in lines along the first dimension: packs of 16 bytes in 16 bits, of 4
// elements, or single elements. As many blocks on each multiprocessor as the registers allow, so
// that some read while others find their place and compute.
constexpr int kLineThreads = 256;
constexpr int line_loads(int count, int operands, bool value) {
  const int loads = count == 1 ? 8 : count == 8 && value ? 2 : 4;
  return operands <= 2 ? loads : loads / 2;
}
constexpr int line_resident(int count, int operands, bool writes, bool value, int real_bytes) {
  if (count == 1 && real_bytes == 8) return value ? 2 : 3;
  return operands > 2 || (count > 1 && writes) ? 2 : count > 1 ? 3 : 4;
}

// Large tensors that are only read, in runs of so many segments of one line: to find a place takes
// some 200 instructions, a segment some 300 to 400.
constexpr int kLineRun = 4;

// The same where lines begin anywhere, in packs of 16 bytes that are shifted into place.
constexpr int shifted_loads(int operands) { return operands <= 2 ? 4 : 2; }
constexpr int kShiftedResident = 3;

// The same where lines are too short: addresses of each element take registers.
constexpr int kStridedThreads = 256;
constexpr int kStridedResident = 3;
// In flight for each thread: fewer of each operand where there are more of them, or elements of 8
// bytes.
constexpr int strided_loads(int operands, int real_bytes) {
  const int loads = real_bytes == 8 ? 4 : 8;
  return operands <= 2 ? loads : loads / 2;
}

// Panels of packs, where so many operands are read anew for each row.
constexpr int kPanelThreads = 256;
constexpr int panel_loads(int count, int fresh) {
  const int loads = fresh == 1 && count < 8 ? 8 : 4;
  return fresh <= 2 ? loads : loads / 2;
}
constexpr int panel_resident(int count, int fresh, bool writes, int real_bytes) {
  return writes || real_bytes == 8 || (count == 8 && fresh > 1) ? 2 : 3;
}

// Small tensors by as many blocks as there are tiles; large ones by a few tiles a block, so that
// its sum costs little beside them.
constexpr Policies kStrided{{0, 0, 0, kPostedBlocks}, {0, 0, 0, kMostBlocks, 4}, int64_t{1} << 26};

// Tiles that are staged in shared memory: rows of 64 elements are whole lines of 128 bytes in 16
// bits; in double and for losses of many operands 32, for the registers. A thread takes a line in
// eight. 8192x8192 float32, transposed against contiguous, forward: 200 us, with 32 227.
constexpr int staged_side(int operands, int real_bytes) {
  return operands <= 2 && real_bytes == 4 ? 64 : 32;
}
constexpr int kStagedLines = 8;
constexpr int staged_resident(int side) { return side == 64 ? 2 : 3; }
// Tiles go down so many before they go across, so that those at work together read long pieces of
// memory of either kind of operand.
constexpr int kStagedGroup = 16;
// Tiles without shared memory, one square of `count` by `count` elements a thread: 256 bytes wide
// and high in packs of 16 bytes.
constexpr int kSquareThreads = 256;
constexpr int kSquareRun = 4;  // tiles that are found as one, of large tensors
LOSSCLI_HOST_DEVICE constexpr int square_side(int count) { return 16 * count; }
constexpr int square_resident(int count, int operands, bool writes) {
  return count == 8 || operands > 2 || writes ? 2 : 3;
}
// Below so many elements along either dimension, tiles would be mostly empty.
constexpr int64_t kLeastStaged = 16;
constexpr Policies kStaged{{0, 0, 0, kPostedBlocks}, {0, 0, 0, kMostBlocks, 2}, int64_t{1} << 26};

// Summands of a shared gradient that one thread takes; more are shared among the threads of a
// block, and where the elements are few, among blocks up to so many in all.
constexpr int kFewSummands = 64;
constexpr int kSharedThreads = 256;
constexpr int64_t kSharedBlocks = 2048;

}  // namespace losscli::cuda
