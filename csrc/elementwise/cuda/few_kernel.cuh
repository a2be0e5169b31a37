// A pass over few elements by one block, all operands dense, but that any after the first may be a
// row that repeats. Such a launch is over before a larger kernel's code and arguments have come
// from memory: both are as short as will do, and nothing waits for a branch before it reads.
#pragma once

#include "elementwise/cuda/rows.h"
#include "elementwise/cuda/worker.cuh"

namespace losscli::cuda {

// Threads for packs of so many elements: each takes one or two packs of 16 bytes, or four of one
// element, so that its sum is a short chain.
template <int count>
constexpr int kFewThreads = count > 4 ? 128 : 256;

// What a launch is told, what is read by first in front: arguments come a line of the constant
// cache at a time. A launch takes packs of 16 bytes, or where operands do not lie so, of one
// element.
template <int operand_count>
struct FewArguments {
  const void* operands[operand_count];
  unsigned packs;
  unsigned row;          // packs after which the rows repeat: 2 or more, or all
  unsigned row_inverse;  // a little more than 2^32 over it, to divide by; 0 where it is all
  unsigned rows;         // the operands that are rows: a bit each
  void* value;
  void* gradients[operand_count];
  Scaling scaling;
  IncomingArguments incoming;

  FewArguments(const ElementwiseArguments& arguments, const Rows& rows, int64_t count)
      : packs(static_cast<unsigned>(arguments.space.size / count)),
        row(static_cast<unsigned>(rows.length / count)),
        row_inverse(0),
        rows(rows.operands),
        value(arguments.value),
        scaling(arguments.scale, arguments.space.size),
        incoming(arguments, false) {
    if (row < packs) row_inverse = static_cast<unsigned>((int64_t{1} << 32) / row + 1);
    for (int n = 0; n < operand_count; ++n) {
      operands[n] = arguments.operands[n].data;
      gradients[n] = arguments.gradients[n];
    }
  }
};

template <typename Loss, typename Stored, typename Pass, int count>
__global__ void __launch_bounds__(kFewThreads<count>)
    loss_few_kernel(const FewArguments<Loss::signature.operands> arguments, const Loss loss) {
  using Real = RealOf<Stored>;
  using Sum = SumOf<Real>;
  using P = Pack<Stored, count>;
  constexpr int kOperands = Loss::signature.operands;
  constexpr int kThreads = kFewThreads<count>, kEach = kFewElements / (kThreads * count);
  P operands[kEach][kOperands];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = min(threadIdx.x + u * kThreads, arguments.packs - 1);
    const unsigned column = i - __umulhi(i, arguments.row_inverse) * arguments.row;
#pragma unroll
    for (int n = 0; n < kOperands; ++n)
      operands[u][n] = static_cast<const P*>(
          arguments.operands[n])[is_row<kOperands>(arguments.rows, n) ? column : i];
  }
  Given incoming;  // so few are not worth a guess: see least_ahead
  incoming.read<Pass>(arguments.incoming);
  const Factor<Real> factor =
      incoming.factor<Real, Pass>(arguments.incoming, arguments.scaling.scale);
  const Worker<Loss, Stored, Pass> worker{loss, arguments.value, arguments.gradients};
  TileSum<Real> sum;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = threadIdx.x + u * kThreads;
    const bool is_there = i < arguments.packs;
    TileSum<Real> part;
    if (!Pass::writes || is_there) worker.pack(operands[u], P(), factor, i * count, part);
    if (!is_there) part = TileSum<Real>();
    sum.add(part);
  }
  if constexpr (Pass::sum) {
    __shared__ Scratch<Sum, kThreads / kWarp> scratch;
    Sum part;
    part.add(sum);
    part = warp_sum(part);
    if (threadIdx.x % kWarp == 0) scratch.put(threadIdx.x / kWarp, part);
    __syncthreads();
    if (threadIdx.x != 0) return;
    Sum total = scratch.get(0);
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarp; ++warp) total.add(scratch.get(warp));
    narrow(static_cast<Real>(total.scaled(arguments.scaling)),
           *static_cast<Stored*>(arguments.value));
  }
}

}  // namespace losscli::cuda
