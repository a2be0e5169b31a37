// The numbers that were found by measuring, apart from the kernels that use them. None depends on
// the GPU at hand: the shape of a launch decides the order in which a sum is taken, and the same
// shape of input is to give the same bits everywhere.
#pragma once

#include <cstdint>

namespace losscli::cuda {

// How a pass is cut into blocks.
struct Cut {
  int threads;     // of a block
  int loads;       // 16-byte loads in flight of each operand and thread
  int resident;    // blocks a multiprocessor is to hold at least: bounds the registers
  int64_t blocks;  // at most; beyond, a block takes more tiles
  int each = 1;    // tiles that a block takes, but for the last
  bool past_first_level = false;  // reads past the first level of the cache
  bool row_ahead = false;         // reads a row that repeats along with the input, not after it
};

// The cut of small tensors and that of large ones, from so many bytes of the input on.
struct Cuts {
  Cut small;
  Cut large;
  int64_t large_bytes;
};

// Partial sums that the last block of a group adds up.
constexpr int kGroup = 512;

// Blocks of a grid, so that one more group takes the sums of the groups: 2^32 elements of float32
// where each block takes a tile.
constexpr int64_t kMostBlocks = int64_t{kGroup} * kGroup;

// Elements of a row that repeats, so that its packs, twice round, are counted in 32 bits.
constexpr int64_t kMostRow = int64_t{1} << 31;

// What one block takes by a kernel of its own.
constexpr int kFewElements = 1024;

// Blocks that post their sums to one that collects them; more of them count each other in.
constexpr int64_t kPostedBlocks = 132 * 64;

// Blocks that exchange their sums without a counter; what every GPU with clusters can launch, but
// for parts of one that have not as many places side by side.
constexpr int64_t kClusterBlocks = 8;

// The times below: H200, microseconds at 2^20 / 2^24 / 2^28 / 2^30 elements, cold, of kernels alone
// in a sweep over 128, 256 and 512 threads, 2, 4 and 8 loads, 512 to 2,048 threads a
// multiprocessor, and 1 wave of blocks to one tile a block. Cuts within 1 % of the best are as good
// as it. Beside them, behind the bar, what kernels need that only move the bytes.

// Reads only. Small tensors in one wave, in which a place is left to the block that collects, and
// past the first level of the cache: 2^24 elements of float32 take 45 through it. Large ones
// through it. Smooth L1, float32: 9.7 / 41.2 / 479 / 1,875 | 7.6 / 42 / 476 / 1,865; bfloat16: 8.5
// / 25.0 / 248 / 946 | 6.6 / 25.5 / 245 / 940.
constexpr Cuts kReadFlat{
    {512, 2, 3, 132 * 2 - 1, 1, true}, {512, 4, 2, 132 * 64}, int64_t{1} << 28};

// The same with one row that repeats for a target, which comes from the first level of the cache:
// where the input goes through it too, the row is read just before it is used. Hinge, float32: 8.4
// / 24.5 / 248 / 948 | 6.4 / 25.1 / 245 / 939.
constexpr Cuts kReadRows{
    {512, 2, 3, 132 * 3 - 1, 1, true, true}, {256, 8, 2, 132 * 64}, int64_t{1} << 29};
// In 16 bits, which take twice the instructions a byte, with less in flight for each of twice the
// threads. float16: 7.5 / 16.2 / 133 / 485 | 5.6 / 15.4 / 129 / 477; as in 32 bits 138 / 485.
constexpr Cuts kReadRows16{
    {512, 2, 3, 132 * 3 - 1, 1, true, true}, {256, 4, 4, 132 * 64}, int64_t{1} << 29};

// Reads and writes. Large tensors with much in flight for each thread and more blocks than fit at a
// time: the order in which they come keeps all at neighbouring places of the memory. Smooth L1 with
// its gradient, float32: 10.4 / 57 / 740 / 2,917 | 749 / 2,976 at 2^28 / 2^30; one wave at 2^30:
// 3,130.
constexpr Cuts kWriteFlat{{512, 2, 3, 132 * 3 - 1}, {512, 8, 1, kMostBlocks}, int64_t{1} << 29};
// In 16 bits: 9.0 / 34 / 380 / 1,474 | 378 / 1,492; with one tile a block 1,526 at 2^30, and with
// registers for 3 blocks a multiprocessor, not 2, the small ones take half as long again.
constexpr Cuts kWriteFlat16{
    {512, 2, 2, 132 * 2 - 1}, {512, 8, 1, kMostBlocks, 2}, int64_t{1} << 29};

// The same with a row that repeats. How many tiles a block takes is what matters here, whatever the
// size: 520 and 2,051 with 4 of them, 526 and 2,082 with 8. Hinge with its gradient, float32: 9.0 /
// 40.7 / 518 / 2,040 | 523 / 2,075 at 2^28 / 2^30.
constexpr Cuts kWriteRows{{512, 2, 3, 132 * 3 - 1, 1, true, true},
                          {512, 8, 1, kMostBlocks, 3, false, true},
                          int64_t{1} << 29};
// In 16 bits, with half the registers and so twice the threads. bfloat16: 8.2 / 24.5 / 267 / 1,038
// | 265 / 1,042; with 8 tiles 270 and 1,045, with 128 threads and 8 tiles 273 and 1,055.
constexpr Cuts kWriteRows16{{512, 2, 2, 132 * 2 - 1, 1, true, true},
                            {512, 4, 2, kMostBlocks, 4, false, true},
                            int64_t{1} << 29};

// What is not the sum of a loss, and operands that lie in any other way, whose places cost
// registers.
constexpr Cuts kPlain{{512, 2, 1, 132 * 3 - 1}, {512, 2, 1, 132 * 64}, int64_t{1} << 29};

// Blocks that find nothing to do where the incoming gradient is 1: few, so that finding it out does
// not grow with the tensor.
constexpr int64_t kRescaleBlocks = 132 * 8;

// Blocks that share the gradient of a broadcast operand, at most, beside those its size asks for.
constexpr int64_t kSharedBlocks = 2048;

}  // namespace losscli::cuda
