// A sum over operands that lie along lines, all of items of 2 or all of 4 bytes, whose lines begin
// anywhere. A warp takes a segment of a line in words of 16 bytes of the first operand that does
// not repeat, which are aligned there. Of another operand, a lane reads the two aligned words that
// hold its elements, the second from the first level of the cache, which the next lane has brought
// there, and shifts them into place: by the same distance all along a line. What a line has before
// its first whole word and after its last is taken element by element.
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
  bool takes = true, along = false;
  for (int k = 0; k < kReads<Loss, Pass>; ++k) {
    const Operand& operand = read_operand<Loss, Pass>(arguments, k);
    takes &= (operand.strides[0] == 0 || operand.strides[0] == 1) &&
             item_bytes(operand.dtype) == item &&
             reinterpret_cast<uintptr_t>(operand.data) % item == 0;
    along |= operand.strides[0] == 1;
  }
  return takes && along && space.sizes[0] > 1;
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
  const int64_t stride = int64_t{blocks.count} * kWarps;
  const Factor<Real> factor{1, false};
  const auto no_index = [](int) { return int64_t{0}; };
  Sum carried;
  int64_t segment = int64_t{blocks.index} * kWarps + threadIdx.x / kWarp;
  const char* bases[kOperands];
  unsigned of_line = 0;  // the segment: what a line holds is counted in 32 bits of segments
  const auto find = [&] {
    if (segment < arguments.segments)
      of_line = static_cast<unsigned>(find_segment(arguments, segment, bases).segment);
  };
  find();
  while (segment < arguments.segments) {
    // Elements before the first whole word, whole words, elements after the last.
    const char* aligned = bases[0];
#pragma unroll
    for (int k = kOperands - 1; k >= 0; --k)
      if (!arguments.operands[k].repeats) aligned = bases[k];
    const int before = static_cast<int>(-reinterpret_cast<uintptr_t>(aligned) % kPackBytes) / kItem;
    const int64_t words = (arguments.length - before) / count;
    const int singles = static_cast<int>(arguments.length - words * count);
    const int64_t first = int64_t{of_line} * kSegment;
    const int left = static_cast<int>(min(int64_t{kSegment}, words - first));
    TileSum<Real> sum;

    const bool any = left > 0;
    uint32_t packs[kOperands][kLoads][4], following[kOperands][kLoads][4];
    unsigned shifts[kOperands];
    if (any) {
      const int last = (left - 1) * kPackBytes;
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        const LineOperand& operand = arguments.operands[k];
        shifts[k] = 0;
        if (operand.repeats) {
          uint32_t element;
          read_bytes<kItem>(bases[k], &element);
          if constexpr (kItem == 2) element |= element << 16;
#pragma unroll
          for (int u = 0; u < kLoads; ++u)
#pragma unroll
            for (int w = 0; w < 4; ++w) packs[k][u][w] = element;
          continue;
        }
        const char* from = bases[k] + (first * count + before) * kItem;
        if (k > 0) shifts[k] = reinterpret_cast<uintptr_t>(from) % kPackBytes;
        from -= shifts[k];
        // Beyond the end, the last words.
        const auto address = [&](int u) {
          return from + min((u * kWarp + lane) * kPackBytes, last);
        };
#pragma unroll
        for (int u = 0; u < kLoads; ++u) read_bytes<kPackBytes>(address(u), packs[k][u]);
        if (k > 0 && shifts[k] != 0) {
#pragma unroll
          for (int u = 0; u < kLoads; ++u)
            read_bytes<kPackBytes>(address(u) + kPackBytes, following[k][u]);
        }
      }
    }
    if (first == 0 && singles > 0) {
      const int64_t element = lane < before    ? lane
                              : lane < singles ? lane + words * count
                                               : int64_t{0};
      Raw<Real, 1> raw[kOperands][1];
      Real x[kOperands][1][1];
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        read_elements<kItem>(
            arguments.operands[k].dtype, false,
            [&](int) { return bases[k] + element * arguments.operands[k].along; }, raw[k]);
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        convert_elements<kItem>(arguments.operands[k].dtype, false, raw[k], x[k]);
      work_on<Pass>(
          loss, arguments.results, factor, x, no_index, [&](int) { return lane < singles; }, sum);
    }
    // The next place is found while these loads are on their way.
    segment += stride;
    find();
    if (any) {
#pragma unroll
      for (int k = 1; k < kOperands; ++k)
        if (shifts[k] != 0) shift_words<kItem>(shifts[k], packs[k], following[k]);
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
    }
    carried.add(sum);
  }
  grid_sum<Shape::threads>(carried, arguments.results.memory, finish);
}

}  // namespace losscli::cuda
