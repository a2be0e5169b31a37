// A sum over operands that lie along lines, all of items of 2 or all of 4 bytes, whose lines begin
// anywhere. A warp takes a run of segments of a line in words of 16 bytes of the first operand,
// which are aligned there. Of another operand, a lane reads the two aligned words that hold its
// elements, the second from the first level of the cache, which the next lane has brought there,
// and shifts them into place: by the same distance all along a line. What a line has before its
// first whole word and after its last is taken element by element.
#pragma once

#include "elementwise/cuda/lines_kernel.cuh"

namespace losscli::cuda {

// Segments of a line, in packs of so many elements.
inline int64_t shifted_segments(int64_t length, int count, int loads) {
  const int64_t segments = divide_up(length / count, int64_t{kWarp} * loads);
  return segments < 1 ? 1 : segments;
}

// Whether a call can be taken in shifted packs of 16 bytes, `count` elements each.
template <typename Loss, typename Pass>
bool takes_shifted(const ElementwiseArguments& arguments, int count) {
  const Space& space = arguments.space;
  const int item = kPackBytes / count;
  bool takes = space.sizes[0] > 1;
  for (int k = 0; k < kReads<Loss, Pass>; ++k) {
    const Operand& operand = read_operand<Loss, Pass>(arguments, k);
    takes &= operand.strides[0] == 1 && item_bytes(operand.dtype) == item &&
             reinterpret_cast<uintptr_t>(operand.data) % item == 0;
  }
  return takes;
}

// 16 bytes from `shift` on, of two words that follow each other; `shift` is not 0, and a multiple
// of `item`.
template <int item, int loads>
__device__ __forceinline__ void shift_words(unsigned shift, uint32_t (&words)[loads][4],
                                            const uint32_t (&following)[loads][4]) {
  const unsigned bits = item == 4 ? 0 : shift % 4 * 8;
  const auto by = [&](auto whole_) {
    constexpr int kWhole = decltype(whole_)::value;
#pragma unroll
    for (int u = 0; u < loads; ++u) {
      uint32_t both[9];
#pragma unroll
      for (int w = 0; w < 4; ++w) both[w] = words[u][w], both[w + 4] = following[u][w];
      both[8] = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w)
        words[u][w] = item == 4 ? both[w + kWhole]
                                : __funnelshift_r(both[w + kWhole], both[w + kWhole + 1], bits);
    }
  };
  switch (shift / 4) {
    case 0:
      return by(std::integral_constant<int, 0>());
    case 1:
      return by(std::integral_constant<int, 1>());
    case 2:
      return by(std::integral_constant<int, 2>());
    default:
      return by(std::integral_constant<int, 3>());
  }
}

template <typename Loss, typename Real, typename Pass, int count, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident) loss_shifted_kernel(
    const Loss loss, const LineArguments<kReads<Loss, Pass>, Loss::signature.operands> arguments) {
  static_assert(Pass::sum && !Pass::writes, "nothing is written from packs that are not aligned");
  using Sum = SumOf<Real>;
  constexpr int kOperands = kReads<Loss, Pass>;
  constexpr int kLoads = Shape::loads, kWarps = Shape::threads / kWarp;
  constexpr int kItem = kPackBytes / count, kSegment = kWarp * kLoads;  // in words

  const auto finish = [&](const Sum& total) { put_total<Sum, Real>(arguments.results, total); };
  Blocks blocks;
  if (!find_block<Sum, Pass, Shape>(arguments.results.memory, blocks, finish)) return;

  const int lane = threadIdx.x % kWarp;
  const Factor<Real> factor{1, false};
  const auto no_index = [](int) { return int64_t{0}; };
  Sum carried;
  // Counted for the block, in uniform registers: a thread has 80, and needs them.
  for (int64_t first_run = int64_t{blocks.index} * kWarps; first_run < arguments.runs;
       first_run += int64_t{blocks.count} * kWarps) {
    const int64_t run = first_run + threadIdx.x / kWarp;
    if (run >= arguments.runs) break;
    const char* bases[kOperands];
    const LineRun found = find_run(arguments, run, bases);
    // Elements before the first whole word, whole words, elements beside them.
    const int before =
        static_cast<int>(-reinterpret_cast<uintptr_t>(bases[0]) % kPackBytes / kItem);
    const int64_t words = (arguments.length - before) / count;
    const int64_t all = int64_t{arguments.run} * kSegment, first = found.run * all;

    // The last run of a line, which has the fewest words, takes the single elements first.
    if (found.run == arguments.each.value - 1) {
      const int singles = static_cast<int>(arguments.length - words * count);
      if (singles > 0) {
        const int64_t element = lane < before    ? lane
                                : lane < singles ? lane + words * count
                                                 : int64_t{0};
        Raw<Real, 1> raw[kOperands][1];
        Real x[kOperands][1][1];
#pragma unroll
        for (int k = 0; k < kOperands; ++k)
          read_elements<kItem>(
              arguments.operands[k].dtype, false, [&](int) { return bases[k] + element * kItem; },
              raw[k]);
#pragma unroll
        for (int k = 0; k < kOperands; ++k)
          convert_elements<kItem>(arguments.operands[k].dtype, false, raw[k], x[k]);
        TileSum<Real> sum;
        work_on<Pass>(
            loss, arguments.results, factor, x, no_index, [&](int) { return lane < singles; }, sum);
        carried.add(sum);
      }
    }

    const int64_t start = first * count + before;
    unsigned shifts[kOperands];
#pragma unroll
    for (int k = 0; k < kOperands; ++k) {
      bases[k] += start * kItem;
      shifts[k] = k == 0 ? 0 : reinterpret_cast<uintptr_t>(bases[k]) % kPackBytes;
      bases[k] -= shifts[k];
    }
    // Words; none where a line is too short, or its last run has single elements alone.
#pragma unroll 1
    for (int left = static_cast<int>(min(all, words - first)); left > 0; left -= kSegment) {
      const auto last = static_cast<unsigned>(min(left, kSegment) - 1) * kPackBytes;
      const auto offset = [&](int u) {  // beyond the end, of the last words
        return min(static_cast<unsigned>(u * kWarp + lane) * kPackBytes, last);
      };
      uint32_t packs[kOperands][kLoads][4], following[kOperands][kLoads][4];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
#pragma unroll
        for (int u = 0; u < kLoads; ++u) read_bytes<kPackBytes>(bases[k] + offset(u), packs[k][u]);
        if (k > 0 && shifts[k] != 0) {
#pragma unroll
          for (int u = 0; u < kLoads; ++u)
            read_bytes<kPackBytes>(bases[k] + offset(u) + kPackBytes, following[k][u]);
        }
        bases[k] += kSegment * kPackBytes;
      }
#pragma unroll
      for (int k = 1; k < kOperands; ++k)
        if (shifts[k] != 0) shift_words<kItem>(shifts[k], packs[k], following[k]);
      TileSum<Real> sum;
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {  // one at a time, for the registers
        Real x[kOperands][1][count];
#pragma unroll
        for (int k = 0; k < kOperands; ++k) {
          Raw<Real, count> raw[1];
#pragma unroll
          for (int w = 0; w < 4; ++w) raw[0].words[w] = packs[k][u][w];
          convert_elements<kItem>(arguments.operands[k].dtype, false, raw, x[k]);
        }
        work_on<Pass>(
            loss, arguments.results, factor, x, no_index,
            [&](int) { return u * kWarp + lane < left; }, sum);
      }
      carried.add(sum);
    }
  }
  grid_sum<Shape::threads>(carried, arguments.results.memory, finish);
}

}  // namespace losscli::cuda
