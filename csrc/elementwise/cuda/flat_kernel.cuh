// A pass over operands that are dense and aligned: packs by their number. Any but the first may be
// a row that repeats, all of one length.
#pragma once

#include "elementwise/cuda/rows.h"
#include "elementwise/cuda/worker.cuh"

namespace losscli::cuda {

// How a thread goes along the rows that repeat, in packs.
struct RowSteps {
  unsigned packs = 1;     // of the row
  unsigned step = 0;      // from one load to the next, less whole rows
  unsigned advance = 0;   // from one tile to the next, less whole rows
  unsigned operands = 0;  // that are rows: a bit each

  RowSteps() = default;
  RowSteps(const Rows& rows, int count, int64_t threads, int64_t advanced)
      : packs(static_cast<unsigned>(rows.length / count)),
        step(static_cast<unsigned>(threads % packs)),
        advance(static_cast<unsigned>(advanced % packs)),
        operands(rows.operands) {}
};

template <int operand_count>
struct FlatArguments {
  const void* operands[operand_count];
  const void* grad_output;  // a tensor of upstream gradients
  int64_t size;
  void* value;
  void* gradients[operand_count];
  Scaling scaling;
  IncomingArguments incoming;
  RowSteps row;
  GridSum memory;

  FlatArguments(const ElementwiseArguments& arguments, const GridSum& memory, RowSteps row,
                bool incoming_tensor)
      : grad_output(incoming_tensor ? arguments.grad_output.data : nullptr),
        size(arguments.space.size),
        value(arguments.value),
        scaling(arguments.scale, arguments.space.size),
        incoming(arguments, incoming_tensor),
        row(row),
        memory(memory) {
    for (int n = 0; n < operand_count; ++n) {
      operands[n] = arguments.operands[n].data;
      gradients[n] = arguments.gradients[n];
    }
  }
};

template <typename Loss, typename Stored, typename Pass, typename Shape, bool kRow>
__global__ void __launch_bounds__(Shape::threads, Shape::resident)
    loss_flat_kernel(const Loss loss, const FlatArguments<Loss::signature.operands> arguments) {
  using Real = RealOf<Stored>;
  using Sum = SumOf<Real>;
  using P = Pack<Stored>;
  constexpr int kOperands = Loss::signature.operands;
  constexpr int kThreads = Shape::threads, kLoads = Shape::loads;
  constexpr int kPacks = kThreads * kLoads;
  // Of more operands than two, which are rows is not known here: all are read together.
  constexpr bool kAhead = !kRow || Shape::row_ahead || kOperands > 2;

  Incoming incoming;
  if (!incoming.read<Pass>(arguments.incoming)) return;
  const auto put_total = [&](const Sum& total) {
    narrow(static_cast<Real>(total.scaled(arguments.scaling)),
           *static_cast<Stored*>(arguments.value));
  };
  Blocks blocks;
  if (!find_block<Sum, Pass, Shape>(arguments.memory, blocks, put_total)) return;
  const Worker<Loss, Stored, Pass> worker{loss, arguments.value, arguments.gradients};
  const auto factor = [&] {
    return incoming.factor<Real, Pass>(arguments.incoming, arguments.scaling.scale);
  };
  const auto* outputs = static_cast<const P*>(arguments.grad_output);

  const int64_t packs = arguments.size / P::kCount;
  const RowSteps& row = arguments.row;
  unsigned column = kRow ? (blocks.index * kPacks + threadIdx.x) % row.packs : 0;
  Sum carried;
  for (int64_t base = int64_t{blocks.index} * kPacks; base < packs;
       base += int64_t{blocks.count} * kPacks) {
    // A tile's part of this thread in Real, the tiles' in double.
    TileSum<Real> sum;
    const int64_t first = base + threadIdx.x;
    unsigned at = column;  // of the rows
    // The n-th operand's pack for the i-th.
    const auto operand_at = [&](int n, int64_t i) {
      const auto* const operand = static_cast<const P*>(arguments.operands[n]);
      if constexpr (kRow) {
        if (is_row<kOperands>(row.operands, n)) return operand[at];
      }
      return read<Shape::past_first_level>(operand + i);
    };
    const auto next_of_rows = [&] {
      if constexpr (kRow) at = wrap(at + row.step, row.packs);
    };
    if (base + kPacks <= packs) {
      P operands[kLoads][kOperands], grad_output[Pass::incoming_tensor ? kLoads : 1];
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
#pragma unroll
        for (int n = 0; n < kOperands; ++n)
          if (kAhead || n != 1) operands[u][n] = operand_at(n, first + u * kThreads);
        if constexpr (kAhead) next_of_rows();
        if constexpr (Pass::incoming_tensor)
          grad_output[u] = read<Shape::past_first_level>(outputs + first + u * kThreads);
      }
      const Factor<Real> by = factor();
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        if constexpr (!kAhead) {
          operands[u][1] = operand_at(1, first + u * kThreads);
          next_of_rows();
        }
        worker.pack(operands[u], grad_output[Pass::incoming_tensor ? u : 0], by,
                    (first + u * kThreads) * P::kCount, sum);
      }
    } else {
      const Factor<Real> by = factor();
#pragma unroll 1  // once in a launch; unrolled it would take registers from all
      for (int64_t i = first; i < packs; i += kThreads) {
        P operands[kOperands];
#pragma unroll
        for (int n = 0; n < kOperands; ++n) operands[n] = operand_at(n, i);
        next_of_rows();
        worker.pack(operands, Pass::incoming_tensor ? outputs[i] : P(), by, i * P::kCount, sum);
      }
    }
    carried.add(sum);
    if constexpr (kRow) column = wrap(column + row.advance, row.packs);
  }

  if constexpr (!kRow) {  // what does not fill a pack, which a row does
    const int64_t last = packs * P::kCount + threadIdx.x;
    if (blocks.index == 0 && last < arguments.size) {
      using One = Pack<Stored, 1>;
      const auto at = [&](const void* data) { return static_cast<const One*>(data)[last]; };
      One operands[kOperands];
#pragma unroll
      for (int n = 0; n < kOperands; ++n) operands[n] = at(arguments.operands[n]);
      TileSum<Real> sum;
      worker.pack(operands, Pass::incoming_tensor ? at(arguments.grad_output) : One(), factor(),
                  last, sum);
      carried.add(sum);
    }
  }
  if constexpr (Pass::sum) grid_sum<Shape::threads>(carried, arguments.memory, put_total);
}

}  // namespace losscli::cuda
