// The numbers that were found by measuring, apart from the kernels that use them. None depends on
// the GPU at hand: the shape of a launch decides the order in which a sum is taken, and the same
// shape of input is to give the same bits everywhere.
#pragma once

#include <cstdint>

namespace losscli::cuda {

// How a pass is cut into blocks.
struct Cut {
  int threads;         // of a block
  int loads;           // 16-byte loads in flight of each operand and thread
  int resident;        // blocks a multiprocessor is to hold at least: bounds the registers
  int64_t max_blocks;  // beyond, a block takes several tiles
};

// Partial sums that the last block of a group adds up.
constexpr int kGroup = 512;

// Blocks of a grid, so that one more group takes the sums of the groups: 2^31 elements of float32
// where each block takes a tile.
constexpr int64_t kMostBlocks = int64_t{kGroup} * kGroup;

// Sums of blocks that need no memory of their own.
constexpr int64_t kSlotBlocks = 256;

// Blocks that exchange their sums without a counter; what every GPU with clusters can launch.
constexpr int64_t kClusterBlocks = 8;

// Reads only: a persistent grid of 132 x 64 blocks. H200, 2^30 elements: smooth L1 1.87 ms in
// float32 and 0.94 ms in bfloat16, hinge 0.95 ms in float32; all within 1 % from 132 x 16 blocks to
// 132 x 256, and 1.94 ms with one tile a block.
constexpr Cut kRead{512, 4, 1, 132 * 64};

// Reads and writes, one tile a block. H200, smooth L1 with its gradient, 2^30 elements: 2.95 ms
// with 512 threads and 4 loads, as torch.add's 2 reads and 1 write; 3.33 ms with 256 and 2, 4.30
// with 256 and 1, for every block pays for its sum; 3.06 ms with a persistent grid of 8,448 blocks.
// Streaming cache operators cost a tenth.
constexpr Cut kWrite{512, 4, 1, kMostBlocks};

// The same down the rows of a repeated target, and in 16-bit dtypes, whose blocks do more for each
// byte: a persistent grid. Hinge with its gradient, 2^30 float32: 2.07 ms, 2.57 with one tile a
// block. Smooth L1, 2^30 bfloat16: 1.50 ms, 1.59 with one tile a block.
constexpr Cut kWritePersistent{256, 4, 1, 132 * 256};

// Blocks that find nothing to do where the incoming gradient is 1: few, so that finding it out does
// not grow with the tensor.
constexpr int64_t kRescaleBlocks = 132 * 8;

// Blocks that share the gradient of a broadcast operand, at most, beside those its size asks for.
constexpr int64_t kSharedBlocks = 2048;

}  // namespace losscli::cuda
