// A pass over operands with any strides, of any dtypes, without a copy. A tile is a run of elements
// of the space; the place of its first one is found by a division for each dimension, those of the
// others by carrying from it, in 32 bits.
#pragma once

#include <algorithm>

#include "elementwise/cuda/any_layout.cuh"

namespace losscli::cuda {

// Strides in bytes.
struct StridedOperand {
  const char* data;
  DType dtype;
  bool repeats;  // along the fastest dimension
  int64_t strides[kMostDimensions];
  int64_t carries[kMostDimensions];  // what it takes to go back along one and on along the next
};

template <int reads, int operand_count>
struct StridedArguments {
  int32_t dimensions;
  int64_t size;
  Divisor sizes[kMostDimensions];
  StridedOperand operands[reads];
  Results<operand_count> results;

  template <typename Find>
  StridedArguments(const ElementwiseArguments& arguments, const GridSum& memory, Find find)
      : dimensions(arguments.space.dimensions),
        size(arguments.space.size),
        results(arguments, memory, reads > operand_count) {
    const Space& space = arguments.space;
    for (int d = 0; d + 1 < dimensions; ++d) sizes[d] = Divisor(space.sizes[d]);
    for (int k = 0; k < reads; ++k) {
      const Operand& from = find(k);
      StridedOperand& to = operands[k];
      to.data = static_cast<const char*>(from.data);
      to.dtype = from.dtype;
      to.repeats = from.strides[0] == 0;
      for (int d = 0; d < dimensions; ++d) to.strides[d] = from.strides[d] * item_bytes(from.dtype);
      for (int d = 0; d + 1 < dimensions; ++d)
        to.carries[d] = to.strides[d + 1] - space.sizes[d] * to.strides[d];
    }
  }
};

template <typename Loss, typename Real, typename Pass, typename Shape>
__global__ void __launch_bounds__(Shape::threads, Shape::resident) loss_strided_kernel(
    const Loss loss,
    const StridedArguments<kReads<Loss, Pass>, Loss::signature.operands> arguments) {
  using Sum = SumOf<Real>;
  constexpr int kOperands = kReads<Loss, Pass>;
  constexpr int kThreads = Shape::threads, kLoads = Shape::loads;
  constexpr int kTile = kThreads * kLoads;

  Incoming incoming;
  if (!incoming.read<Pass>(arguments.results.incoming)) return;
  const auto finish = [&](const Sum& total) { put_total<Sum, Real>(arguments.results, total); };
  Blocks blocks;
  if (!find_block<Sum, Pass, Shape>(arguments.results.memory, blocks, finish)) return;

  Sum carried;
  for (int64_t base = int64_t{blocks.index} * kTile; base < arguments.size;
       base += int64_t{blocks.count} * kTile) {
    // Beyond the end a thread reads the last element again.
    const auto last = static_cast<unsigned>(min(int64_t{kTile}, arguments.size - base)) - 1;
    const auto offset = [&](int u) { return u * kThreads + threadIdx.x; };

    unsigned along[kLoads];  // places along the dimension at hand, from the tile's first one on
    int64_t places[kOperands][kLoads];
    const char* bases[kOperands];
#pragma unroll
    for (int u = 0; u < kLoads; ++u) {
      along[u] = min(offset(u), last);
#pragma unroll
      for (int k = 0; k < kOperands; ++k)
        places[k][u] = static_cast<int64_t>(along[u]) * arguments.operands[k].strides[0];
    }
#pragma unroll
    for (int k = 0; k < kOperands; ++k) bases[k] = arguments.operands[k].data;
    int64_t rest = base;
#pragma unroll 1
    for (int d = 0; d + 1 < arguments.dimensions; ++d) {
      const Divisor& size = arguments.sizes[d];
      const int64_t next = size.divide(rest), first = rest - next * size.value;
      rest = next;
      if (size.divides_small()) {
#pragma unroll
        for (int u = 0; u < kLoads; ++u)
          along[u] = size.divide_small(static_cast<unsigned>(first) + along[u]);
      } else {  // longer than a tile
        const auto left = static_cast<unsigned>(min(size.value - first, int64_t{1} << 30));
#pragma unroll
        for (int u = 0; u < kLoads; ++u) along[u] = along[u] >= left;
      }
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        bases[k] += first * arguments.operands[k].strides[d];
#pragma unroll
        for (int u = 0; u < kLoads; ++u)
          places[k][u] += static_cast<int64_t>(along[u]) * arguments.operands[k].carries[d];
      }
    }
#pragma unroll
    for (int k = 0; k < kOperands; ++k)
      bases[k] += rest * arguments.operands[k].strides[arguments.dimensions - 1];

    Raw<Real, 1> raw[kOperands][kLoads];
#pragma unroll
    for (int k = 0; k < kOperands; ++k)
      read_elements(
          arguments.operands[k].dtype, arguments.operands[k].repeats,
          [&](int u) { return bases[k] + places[k][u]; }, raw[k]);
    Real x[kOperands][kLoads][1];
#pragma unroll
    for (int k = 0; k < kOperands; ++k)
      convert_elements(arguments.operands[k].dtype, arguments.operands[k].repeats, raw[k], x[k]);

    TileSum<Real> sum;
    work_on<Pass>(
        loss, arguments.results, factor_of<Pass, Real>(arguments.results, incoming), x,
        [&](int u) { return base + offset(u); }, [&](int u) { return offset(u) <= last; }, sum);
    carried.add(sum);
  }
  if constexpr (Pass::sum) grid_sum<Shape::threads>(carried, arguments.results.memory, finish);
}

}  // namespace losscli::cuda
