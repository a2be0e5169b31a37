// The same tiles without shared memory, where the operands lie in aligned packs, each along its own
// dimension. A thread takes a square of elements, as wide and as high as a pack is long: in packs
// along the first dimension of one operand, along the other of the next, and turns it in its
// registers. A block takes a run of such tiles, one beside the other. No thread waits for another,
// and every sector of 32 bytes is read whole.
#pragma once

#include "elementwise/cuda/staged_kernel.cuh"

namespace losscli::cuda {

// Whether all operands lie in packs of `count` elements, or of 16 bytes where that is less, of at
// most `most` bytes an element, and so do the outputs.
template <int reads, int operand_count>
bool lies_in_squares(const StagedArguments<reads, operand_count>& arguments, int count, int most) {
  bool lies = arguments.across % count == 0 && arguments.down % count == 0;
  for (const void* gradient : arguments.results.gradients) lies &= aligned(gradient);
  for (const StagedOperand& operand : arguments.operands) {
    const int item = item_bytes(operand.dtype);
    const int64_t pack = std::min(count * item, kPackBytes);
    const bool staged = operand.slot >= 0;
    lies &= item <= most && (staged ? operand.down : operand.across) == item &&
            (staged ? operand.across : operand.down) % pack == 0 &&
            reinterpret_cast<uintptr_t>(operand.data) % pack == 0;
    for (int d = 0; d < arguments.batches; ++d) lies &= operand.strides[d] % pack == 0;
  }
  return lies;
}

template <typename Real, int count>
__device__ __forceinline__ void transpose(Real (&x)[count][count]) {
#pragma unroll
  for (int i = 0; i < count; ++i)
#pragma unroll
    for (int j = 0; j < i; ++j) {
      const Real kept = x[i][j];
      x[i][j] = x[j][i];
      x[j][i] = kept;
    }
}

// The same of items of 2 bytes, two in each word.
template <int count>
__device__ __forceinline__ void transpose(Raw<float, count> (&raw)[count]) {
  uint32_t turned[count][count / 2];
#pragma unroll
  for (int i = 0; i < count; ++i)
#pragma unroll
    for (int w = 0; w < count / 2; ++w)
      turned[i][w] = __byte_perm(raw[2 * w].words[i / 2], raw[2 * w + 1].words[i / 2],
                                 i % 2 == 0 ? 0x5410 : 0x7632);
#pragma unroll
  for (int i = 0; i < count; ++i)
#pragma unroll
    for (int w = 0; w < count / 2; ++w) raw[i].words[w] = turned[i][w];
}

template <typename Loss, typename Real, typename Pass, int count, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident) loss_squares_kernel(
    const Loss loss,
    const StagedArguments<kReads<Loss, Pass>, Loss::signature.operands> arguments) {
  using Sum = SumOf<Real>;
  constexpr int kOperands = kReads<Loss, Pass>;
  constexpr int kSide = square_side(count);
  static_assert(Shape::threads * count * count == kSide * kSide, "a tile is one square a thread");
  // Packs wider than 16 bytes in Real are of items of 2 bytes.
  constexpr int kItem = count * sizeof(Real) > kPackBytes ? 2 : 0;

  Incoming incoming;
  if (!incoming.read<Pass>(arguments.results.incoming)) return;
  const auto finish = [&](const Sum& total) { put_total<Sum, Real>(arguments.results, total); };
  Blocks blocks;
  if (!find_block<Sum, Pass, Shape>(arguments.results.memory, blocks, finish)) return;

  // A warp takes 8 squares down and 4 across: lines of 128 bytes of one operand, half lines of the
  // other, where packs are of 16 bytes.
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int own_down = (warp % 2 * 8 + lane % 8) * count;
  const int own_across = (warp / 2 * 4 + lane / 8) * count;
  const int wide = kSide * arguments.run;
  Sum carried;
  for (int64_t tile = blocks.index; tile < arguments.tiles; tile += blocks.count) {
    StagedTile<kOperands> at;
    at.find(arguments, wide, kSide, tile);
#pragma unroll 1
    for (; at.across > 0; at.across -= kSide) {
      const bool inside = own_down < at.down && own_across < at.across;
      // Outside of the tile, its last square.
      const int down = min(own_down, at.down - count);
      const int across = min(own_across, at.across - count);
      Raw<Real, count> raw[kOperands][count];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        const StagedOperand& operand = arguments.operands[k];
        const char* const first = at.bases[k] + static_cast<int64_t>(down) * operand.down +
                                  static_cast<int64_t>(across) * operand.across;
        const int between = operand.slot >= 0 ? operand.across : operand.down;
        read_elements<kItem>(
            operand.dtype, false, [&](int u) { return first + static_cast<int64_t>(u) * between; },
            raw[k]);
      }
      const int64_t out = at.out + across + static_cast<int64_t>(down) * arguments.out_down;
      const Factor<Real> factor = factor_of<Pass, Real>(arguments.results, incoming);
      const auto work = [&](int from, const auto& x, TileSum<Real>& sum) {
        work_on<Pass>(
            loss, arguments.results, factor, x,
            [&](int u) { return out + static_cast<int64_t>(from + u) * arguments.out_down; },
            [&](int) { return inside; }, sum);
      };
      TileSum<Real> sum;
      if constexpr (kItem == 0) {
        Real x[kOperands][count][count];
#pragma unroll
        for (int k = 0; k < kOperands; ++k) {
          convert_elements(arguments.operands[k].dtype, false, raw[k], x[k]);
          if (arguments.operands[k].slot >= 0) transpose(x[k]);
        }
        work(0, x, sum);
      } else {
#pragma unroll
        for (int k = 0; k < kOperands; ++k)
          if (arguments.operands[k].slot >= 0) transpose(raw[k]);
        constexpr int kAtOnce = 2;  // for the registers
#pragma unroll
        for (int from = 0; from < count; from += kAtOnce) {
          Real x[kOperands][kAtOnce][count];
#pragma unroll
          for (int k = 0; k < kOperands; ++k) {
            Raw<Real, count> some[kAtOnce];
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) some[u] = raw[k][from + u];
            convert_elements<kItem>(arguments.operands[k].dtype, false, some, x[k]);
          }
          work(from, x, sum);
        }
      }
      carried.add(sum);
      at.out += kSide;
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        at.bases[k] += static_cast<int64_t>(kSide) * arguments.operands[k].across;
    }
  }
  if constexpr (Pass::sum) grid_sum<Shape::threads>(carried, arguments.results.memory, finish);
}

}  // namespace losscli::cuda
