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
  int64_t blocks;  // at most; beyond, a block takes several tiles
  bool past_first_level = false;  // reads past the first level of the cache
  int each = 1;                   // tiles that a block takes at least, of a walk down rows
};

// The cut of small tensors and that of large ones, from so many bytes of the input on.
struct Cuts {
  Cut small;
  Cut large;
  int64_t large_bytes;
};

// Partial sums that the last block of a group adds up.
constexpr int kGroup = 512;

// Blocks of a grid, so that one more group takes the sums of the groups: 2^31 elements of float32
// where each block takes a tile.
constexpr int64_t kMostBlocks = int64_t{kGroup} * kGroup;

// Packs of a row that repeats: a strip of 128 columns of them for each block, no more than these.
constexpr int64_t kMostRowPacks = kMostBlocks * 128;

// What one block takes by a kernel of its own.
constexpr int kFewElements = 1024;

// Blocks whose first one waits for the sums of the others; more of them count each other in. It is
// most of what a GPU holds at a time: the first block is not to wait for long.
constexpr int64_t kPostedBlocks = 512;

// Blocks that exchange their sums without a counter; what every GPU with clusters can launch.
constexpr int64_t kClusterBlocks = 8;

// The times below: H200, microseconds at 2^20 / 2^24 / 2^28 / 2^30 elements, the best of a sweep
// over 128, 256 and 512 threads, 2, 4 and 8 loads, 512 to 2,048 threads a multiprocessor, and 1
// wave of blocks to one tile a block. Cuts within 1 % of the best are as good as it.

// Reads only. Small tensors in one wave, which leaves no block to wait for, and past the first
// level of the cache, which large ones take a twentieth longer with. Smooth L1, float32: 10 / 40.1
// / 472 / 1,836; 2^24 takes 41.2 with 256 threads and 4 loads, 77 with 32 waves.
constexpr Cuts kReadFlat{{512, 2, 3, 132 * 3, true}, {512, 4, 2, 132 * 64}, int64_t{1} << 28};
// In 16 bits a thread needs the registers: 8.8 / 24.7 / 243 / 949 in bfloat16.
constexpr Cuts kReadFlat16{{512, 2, 2, 132 * 2, true}, {512, 2, 2, 132 * 64}, int64_t{1} << 29};

// The same down the rows of a repeated target, one tensor. Hinge, float32: 8.8 / 24.9 / 250 / 937;
// bfloat16: 8.1 / 17.1 / 138 / 485.
constexpr Cuts kReadRows{{256, 4, 4, 132 * 3, true}, {256, 4, 4, 132 * 64}, int64_t{1} << 29};

// Reads and writes. Large tensors with much in flight for each thread and more blocks than fit at a
// time: the order in which they come keeps all at neighbouring places of the memory. Smooth L1 with
// its gradient, float32: 10.4 / 56 / 740 / 2,924, where torch.add takes 2,947 for the same bytes;
// one wave at 2^30: 3,130.
constexpr Cuts kWriteFlat{{512, 2, 3, 132 * 3}, {512, 8, 1, kMostBlocks}, int64_t{1} << 29};
// In 16 bits: 9.0 / 33 / 382 / 1,488, where torch.add takes 1,468; with registers for 3 blocks a
// multiprocessor, not 2, the small ones take half as long again.
constexpr Cuts kWriteFlat16{{512, 2, 2, 132 * 2}, {128, 8, 1, 132 * 512}, int64_t{1} << 29};

// The same down the rows. Hinge with its gradient, float32: 9.6 / 41 / 525 / 2,054, where a copy
// takes 1,996; bfloat16: 8.3 / 25 / 271 / 1,065, where it takes 1,000.
constexpr Cuts kWriteRows{{512, 2, 2, 132 * 2}, {256, 8, 1, 132 * 256, false, 4}, int64_t{1} << 29};
constexpr Cuts kWriteRows16{{512, 2, 2, 132 * 2}, {128, 4, 1, 132 * 128}, int64_t{1} << 30};

// What is not the sum of a loss, and operands that lie in any other way, whose places cost
// registers.
constexpr Cuts kPlain{{512, 2, 1, 132 * 3}, {512, 2, 1, 132 * 64}, int64_t{1} << 29};

// Blocks that find nothing to do where the incoming gradient is 1: few, so that finding it out does
// not grow with the tensor.
constexpr int64_t kRescaleBlocks = 132 * 8;

// Blocks that share the gradient of a broadcast operand, at most, beside those its size asks for.
constexpr int64_t kSharedBlocks = 2048;

}  // namespace losscli::cuda
