// A pass over operands with any strides, of any dtypes, whose first dimension is long. A warp takes
// a run of segments of one line along it: the run's place is found once, by a division for each of
// the other dimensions, and its elements follow one another.
#pragma once

#include <algorithm>

#include "elementwise/cuda/any_layout.cuh"

namespace losscli::cuda {

// Strides in bytes.
struct LineOperand {
  const char* data;
  DType dtype;
  bool repeats;                      // along the line
  uint32_t along;                    // the line
  int64_t strides[kMostDimensions];  // along the other dimensions
};

// Whether runs may be longer than a segment: not where they would take registers that there are
// none of, nor where the writes take the time.
template <typename Real, typename Pass>
constexpr bool takes_runs = sizeof(Real) == 4 && Pass::sum && !Pass::writes;

// How lines are divided.
struct LineRuns {
  int64_t of_line = 0;
  int length = 1;  // segments
};

template <int reads, int operand_count>
struct LineArguments {
  int64_t length;  // elements of a line
  int32_t run;     // segments of a run, but for the last of a line
  int64_t runs;    // of all lines
  Divisor each;    // runs of a line
  int32_t others;  // dimensions beside the line
  Divisor sizes[kMostDimensions];
  LineOperand operands[reads];
  Results<operand_count> results;

  template <typename Find>
  LineArguments(const ElementwiseArguments& arguments, const GridSum& memory, LineRuns divided,
                Find find)
      : length(arguments.space.sizes[0]),
        run(divided.length),
        each(divided.of_line),
        others(arguments.space.dimensions - 1),
        results(arguments, memory, reads > operand_count) {
    const Space& space = arguments.space;
    runs = length > 0 ? space.size / length * each.value : 0;
    for (int d = 0; d < others; ++d) sizes[d] = Divisor(space.sizes[d + 1]);
    for (int k = 0; k < reads; ++k) {
      const Operand& from = find(k);
      LineOperand& to = operands[k];
      const int64_t bytes = item_bytes(from.dtype);
      to.data = static_cast<const char*>(from.data);
      to.dtype = from.dtype;
      to.repeats = from.strides[0] == 0;
      to.along = static_cast<uint32_t>(from.strides[0] * bytes);
      for (int d = 0; d < others; ++d) to.strides[d] = from.strides[d + 1] * bytes;
    }
  }
};

// Whether a warp reaches all of a segment by offsets of 32 bits.
inline bool reaches_segments(const Operand& operand, int segment) {
  const int64_t bytes = operand.strides[0] * item_bytes(operand.dtype);
  return bytes >= 0 && bytes < (int64_t{1} << 31) / segment;
}

// Whether segments of so many elements are filled well enough by lines of a length.
inline bool fills_segments(int64_t length, int64_t segment) {
  return length * 10 >= divide_up(length, segment) * segment * 6;
}

// Whether an operand can be read `count` elements at a time along the fastest dimension, of at most
// `most` bytes each.
inline bool reads_packs(const Operand& operand, const Space& space, int count, int most) {
  if (operand.strides[0] == 0 && space.sizes[0] != 1) return true;
  if (operand.strides[0] != 1 || item_bytes(operand.dtype) > most) return false;
  for (int d = 1; d < space.dimensions; ++d)
    if (operand.strides[d] % count != 0) return false;
  const auto bytes = std::min(count * item_bytes(operand.dtype), kPackBytes);
  return reinterpret_cast<uintptr_t>(operand.data) % bytes == 0;
}

// Whether a call can be taken `count` elements at a time.
template <typename Loss, typename Real, typename Pass>
bool takes_packs(const ElementwiseArguments& arguments, int count) {
  const Space& space = arguments.space;
  const auto writes_packs = [&](const void* out, DType dtype) {
    return reinterpret_cast<uintptr_t>(out) % std::min(count * item_bytes(dtype), kPackBytes) == 0;
  };
  bool packs = space.sizes[0] % count == 0 &&
               (arguments.reduce || writes_packs(arguments.value, arguments.dtype));
  for (int k = 0; k < kReads<Loss, Pass>; ++k)
    packs &= reads_packs(read_operand<Loss, Pass>(arguments, k), space, count, sizeof(Real));
  for (int n = 0; n < Loss::signature.operands; ++n)
    packs &= writes_packs(arguments.gradients[n], arguments.operands[n].dtype);
  return packs;
}

struct LineRun {
  int64_t line;
  int64_t run;  // of the line
};

// Finds a run, and where each operand's line begins.
template <int reads, int operand_count>
__device__ __forceinline__ LineRun find_run(const LineArguments<reads, operand_count>& arguments,
                                            int64_t index, const char* (&bases)[reads]) {
  LineRun found;
  found.line = arguments.each.divide(index);
  found.run = index - found.line * arguments.each.value;
#pragma unroll
  for (int k = 0; k < reads; ++k) bases[k] = arguments.operands[k].data;
  int64_t rest = found.line;
#pragma unroll 1
  for (int d = 0; d < arguments.others; ++d) {
    const int64_t next = arguments.sizes[d].divide(rest);
    const int64_t at = rest - next * arguments.sizes[d].value;
    rest = next;
#pragma unroll
    for (int k = 0; k < reads; ++k) bases[k] += at * arguments.operands[k].strides[d];
  }
  return found;
}

template <typename Loss, typename Real, typename Pass, int count, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident)
    loss_lines_kernel(const Loss loss,
                      const LineArguments<kReads<Loss, Pass>, Loss::signature.operands> arguments) {
  using Sum = SumOf<Real>;
  constexpr int kOperands = kReads<Loss, Pass>;
  constexpr int kLoads = Shape::loads, kWarps = Shape::threads / kWarp;
  constexpr int kStep = kWarp * count, kSegment = kStep * kLoads;

  Incoming incoming;
  if (!incoming.read<Pass>(arguments.results.incoming)) return;
  const auto finish = [&](const Sum& total) { put_total<Sum, Real>(arguments.results, total); };
  Blocks blocks;
  if (!find_block<Sum, Pass, Shape>(arguments.results.memory, blocks, finish)) return;

  // Packs wider than 16 bytes in Real are of items of 2 bytes.
  constexpr int kItem = count * sizeof(Real) > kPackBytes ? 2 : 0;
  constexpr bool kRuns = takes_runs<Real, Pass>;
  const int lane = threadIdx.x % kWarp;
  Sum carried;
  for (int64_t run = int64_t{blocks.index} * kWarps + threadIdx.x / kWarp; run < arguments.runs;
       run += int64_t{blocks.count} * kWarps) {
    const char* bases[kOperands];
    const LineRun found = find_run(arguments, run, bases);
    const int64_t all = kRuns ? int64_t{arguments.run} * kSegment : kSegment;
    const int64_t first = found.run * all;
#pragma unroll
    for (int k = 0; k < kOperands; ++k) bases[k] += first * arguments.operands[k].along;
    int64_t out = found.line * arguments.length + first;
    int left = static_cast<int>(min(all, arguments.length - first));
#pragma unroll 1
    do {
      const auto place = [&](int u) { return u * kStep + lane * count; };
      Raw<Real, count> raw[kOperands][kLoads];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        const LineOperand& operand = arguments.operands[k];
        read_elements<kItem>(
            operand.dtype, operand.repeats,
            // Beyond the end, the last elements.
            [&](int u) {
              return bases[k] +
                     static_cast<uint64_t>(static_cast<unsigned>(min(place(u), left - count))) *
                         operand.along;
            },
            raw[k]);
      }
      const Factor<Real> factor = factor_of<Pass, Real>(arguments.results, incoming);
      TileSum<Real> sum;
      // Wide packs a few at a time: what was read takes fewer registers.
      constexpr int kAtOnce = kItem == 2 && kLoads > 2 ? 2 : kLoads;
#pragma unroll
      for (int from = 0; from < kLoads; from += kAtOnce) {
        Real x[kOperands][kAtOnce][count];
#pragma unroll
        for (int k = 0; k < kOperands; ++k) {
          Raw<Real, count> some[kAtOnce];
#pragma unroll
          for (int u = 0; u < kAtOnce; ++u) some[u] = raw[k][from + u];
          convert_elements<kItem>(arguments.operands[k].dtype, arguments.operands[k].repeats, some,
                                  x[k]);
        }
        work_on<Pass>(
            loss, arguments.results, factor, x, [&](int u) { return out + place(from + u); },
            [&](int u) { return place(from + u) < left; }, sum);
      }
      carried.add(sum);
      if constexpr (kRuns) {
        out += kSegment;
#pragma unroll
        for (int k = 0; k < kOperands; ++k)
          bases[k] += static_cast<int64_t>(kSegment) * arguments.operands[k].along;
      }
    } while (kRuns && (left -= kSegment) > 0);
  }
  if constexpr (Pass::sum) grid_sum<Shape::threads>(carried, arguments.results.memory, finish);
}

}  // namespace losscli::cuda
