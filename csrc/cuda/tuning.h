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

constexpr int64_t kUnlimited = int64_t{1} << 31;

// Reads only. H200, two operands of 4 GiB: a persistent grid of 132 x 64 blocks was the best of a
// sweep.
constexpr Cut kRead{512, 4, 1, 132 * 64};

// Reads and writes. H200, 4 GiB tensors, 2 reads and 1 write: one tile a block reached 4,404 GB/s,
// a persistent grid 4,210; streaming cache operators cost a tenth.
constexpr Cut kWrite{256, 2, 4, kUnlimited - 1};

// Blocks that find nothing to do where the incoming gradient is 1: few, so that finding it out does
// not grow with the tensor.
constexpr int64_t kRescaleBlocks = 132 * 8;

// Partial sums that the last block of a group adds up.
constexpr int kGroup = 512;

// Blocks that share the gradient of a broadcast operand, at most, beside those its size asks for.
constexpr int64_t kSharedBlocks = 2048;

}  // namespace losscli::cuda
