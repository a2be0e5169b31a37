// A pass over operands of which some are contiguous along the first dimension of the space and
// others along another, as a transposed operand beside a contiguous one. A tile is a rectangle of
// these two dimensions; the others are read along theirs into shared memory, and from there along
// the first, so that every access to memory takes neighbouring elements.
#pragma once

#include <algorithm>

#include "elementwise/cuda/any_layout.cuh"
#include "elementwise/cuda/rows.h"

namespace losscli::cuda {

// Strides in bytes.
struct StagedOperand {
  const char* data;
  DType dtype;
  int slot;        // of shared memory; -1 where it is read along the first dimension
  int32_t across;  // along the first dimension
  int32_t down;    // along the other
  int64_t strides[kMostDimensions];  // along the dimensions that are left
};

template <int reads, int operand_count>
struct StagedArguments {
  int64_t tiles;
  int32_t run;           // squares kernel: tiles that are found as one
  int64_t across, down;  // elements
  int32_t out_down;      // from one element to the next along `down`, in the outputs
  int64_t tiles_down;
  Divisor tiles_of_batch, tiles_of_group;
  int32_t batches = 0;  // dimensions that are left
  Divisor sizes[kMostDimensions];
  int64_t out_strides[kMostDimensions];
  StagedOperand operands[reads];
  Results<operand_count> results;

  template <typename Find>
  StagedArguments(const ElementwiseArguments& arguments, const GridSum& memory, int side, int run,
                  Find find)
      : run(run), results(arguments, memory, reads > operand_count) {
    const Space& space = arguments.space;
    int dimension = 0;
    for (int k = 0; k < reads && dimension == 0; ++k) dimension = staged_dimension(find(k), space);
    int64_t dense[kMostDimensions], stride = 1;
    for (int d = 0; d < space.dimensions; stride *= space.sizes[d++]) dense[d] = stride;
    across = space.sizes[0];
    down = space.sizes[dimension];
    out_down = static_cast<int32_t>(dense[dimension]);
    const int64_t tiles_across = divide_up(across, int64_t{side} * run);
    tiles_down = divide_up(down, side);
    tiles = tiles_across * tiles_down;
    tiles_of_batch = Divisor(tiles);
    tiles_of_group = Divisor(tiles_across * kStagedGroup);
    int slots = 0;
    for (int k = 0; k < reads; ++k) {
      const Operand& from = find(k);
      StagedOperand& to = operands[k];
      const int64_t bytes = item_bytes(from.dtype);
      to.data = static_cast<const char*>(from.data);
      to.dtype = from.dtype;
      const bool staged = staged_dimension(from, space) == dimension && slots < reads - 1;
      to.slot = staged ? slots++ : -1;
      to.across = static_cast<int32_t>(from.strides[0] * bytes);
      to.down = static_cast<int32_t>(from.strides[dimension] * bytes);
    }
    for (int d = 1; d < space.dimensions; ++d) {
      if (d == dimension) continue;
      tiles *= space.sizes[d];
      sizes[batches] = Divisor(space.sizes[d]);
      out_strides[batches] = dense[d];
      for (int k = 0; k < reads; ++k)
        operands[k].strides[batches] = find(k).strides[d] * item_bytes(find(k).dtype);
      ++batches;
    }
  }
};

// Where a tile lies, and how much of it there is.
template <int reads>
struct StagedTile {
  int across, down;          // elements
  int64_t out;               // its first element in the outputs
  const char* bases[reads];  // and in the operands

  template <typename Arguments>
  __device__ __forceinline__ void find(const Arguments& arguments, int wide, int high,
                                       int64_t tile) {
    int64_t batch = arguments.tiles_of_batch.divide(tile);
    const int64_t in_batch = tile - batch * arguments.tiles_of_batch.value;
    const int64_t group = arguments.tiles_of_group.divide(in_batch);
    const auto in_group = static_cast<unsigned>(in_batch - group * arguments.tiles_of_group.value);
    const auto rows = static_cast<unsigned>(
        min(int64_t{kStagedGroup}, arguments.tiles_down - group * kStagedGroup));
    const unsigned column = in_group / rows;
    const int64_t first_across = int64_t{column} * wide;
    const int64_t first_down = (group * kStagedGroup + (in_group - column * rows)) * high;
    across = static_cast<int>(min(int64_t{wide}, arguments.across - first_across));
    down = static_cast<int>(min(int64_t{high}, arguments.down - first_down));

    out = first_across + first_down * arguments.out_down;
#pragma unroll
    for (int k = 0; k < reads; ++k)
      bases[k] = arguments.operands[k].data + first_across * arguments.operands[k].across +
                 first_down * arguments.operands[k].down;
#pragma unroll 1
    for (int d = 0; d < arguments.batches; ++d) {
      const int64_t next = arguments.sizes[d].divide(batch);
      const int64_t at = batch - next * arguments.sizes[d].value;
      batch = next;
      out += at * arguments.out_strides[d];
#pragma unroll
      for (int k = 0; k < reads; ++k) bases[k] += at * arguments.operands[k].strides[d];
    }
  }
};

template <typename Loss, typename Real, typename Pass, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident) loss_staged_kernel(
    const Loss loss,
    const StagedArguments<kReads<Loss, Pass>, Loss::signature.operands> arguments) {
  using Sum = SumOf<Real>;
  constexpr int kOperands = kReads<Loss, Pass>;
  constexpr int kStep = kStagedLines, kLoads = Shape::loads, kSide = kStep * kLoads;
  // A column more than it takes, so that neither way two threads of a warp meet in a bank.
  __shared__ Real staged[kOperands - 1][kSide][kSide + 1];

  Incoming incoming;
  if (!incoming.read<Pass>(arguments.results.incoming)) return;
  const auto finish = [&](const Sum& total) { put_total<Sum, Real>(arguments.results, total); };
  Blocks blocks;
  if (!find_block<Sum, Pass, Shape>(arguments.results.memory, blocks, finish)) return;

  // A thread takes every kStep-th line of a tile, at one place along it. Lines go across, and in an
  // operand that is staged, down.
  const int place = threadIdx.x % kSide, line = threadIdx.x / kSide;
  Sum carried;
  for (int64_t tile = blocks.index; tile < arguments.tiles; tile += blocks.count) {
    StagedTile<kOperands> place_of_tile;
    place_of_tile.find(arguments, kSide, kSide, tile);
    const auto& bases = place_of_tile.bases;
    const int across = place_of_tile.across, down = place_of_tile.down;
    const int64_t out = place_of_tile.out;

    Raw<Real, 1> raw[kOperands][kLoads];
#pragma unroll
    for (int k = 0; k < kOperands; ++k) {
      const StagedOperand& operand = arguments.operands[k];
      const bool is_staged = operand.slot >= 0;
      const int along = is_staged ? operand.down : operand.across;
      const int between = is_staged ? operand.across : operand.down;
      const int length = is_staged ? down : across, lines = is_staged ? across : down;
      const char* const first = bases[k] + static_cast<int64_t>(min(place, length - 1)) * along;
      read_elements(
          operand.dtype, false,
          [&](int u) {  // outside of the tile, its last elements
            return first + static_cast<int64_t>(min(line + u * kStep, lines - 1)) * between;
          },
          raw[k]);
    }
    Real x[kOperands][kLoads][1];
    __syncthreads();  // the last tile has been read
#pragma unroll
    for (int k = 0; k < kOperands; ++k) {
      const StagedOperand& operand = arguments.operands[k];
      convert_elements(operand.dtype, false, raw[k], x[k]);
      if (operand.slot >= 0) {
#pragma unroll
        for (int u = 0; u < kLoads; ++u) staged[operand.slot][line + u * kStep][place] = x[k][u][0];
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kOperands; ++k) {
      const int slot = arguments.operands[k].slot;
      if (slot >= 0) {
#pragma unroll
        for (int u = 0; u < kLoads; ++u) x[k][u][0] = staged[slot][place][line + u * kStep];
      }
    }

    TileSum<Real> sum;
    work_on<Pass>(
        loss, arguments.results, factor_of<Pass, Real>(arguments.results, incoming), x,
        [&](int u) {
          return out + place + static_cast<int64_t>(line + u * kStep) * arguments.out_down;
        },
        [&](int u) { return place < across && line + u * kStep < down; }, sum);
    carried.add(sum);
  }
  if constexpr (Pass::sum) grid_sum<Shape::threads>(carried, arguments.results.memory, finish);
}

}  // namespace losscli::cuda
