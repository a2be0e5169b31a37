// Walks a space in tiles: reads operands of any dtype and layout, hands them to the loss's loop,
// writes what comes out.
#include <algorithm>

#include "core/cpu/parallel.h"
#include "elementwise/cpu/incoming.h"
#include "elementwise/cpu/loops.h"
#include "elementwise/cpu/loss.h"
#include "elementwise/cpu/reader.h"
#include "elementwise/cpu/writer.h"
#ifdef LOSSCLI_STRATEGIES
#include "reduce/cpu/strategies.h"
#else
#include "reduce/cpu/partial_sums.h"
#endif

namespace losscli::cpu {
namespace {

// Tiles that one thread takes at a time. A sum is kept for each chunk of them, so that the result
// does not depend on the number of threads; the number of tiles follows the size alone. Few enough
// that many threads get equal shares, enough that waking one pays.
constexpr int64_t kFewestTiles = 16, kMostTiles = 64, kChunks = 64;

int64_t chunk_size(int64_t size) {
  return std::clamp(divide_up(size, kTile * kChunks), kFewestTiles, kMostTiles) * kTile;
}

template <typename Stored>
void run(const ElementwiseArguments& arguments, const LaunchContext& context) {
  using Real = RealOf<Stored>;
  const int64_t size = arguments.space.size;
  const bool sum = arguments.reduce && arguments.value;
  const Incoming incoming(arguments);
  unsigned gradients = 0;
  if (incoming.wanted())
    for (int k = 0; k < kOperands; ++k) gradients |= (arguments.gradients[k] ? 1u : 0u) << k;
  void* const values = sum ? nullptr : arguments.value;

  // What is computed of a tile, one after the other. Values and gradients of full size are rarely
  // wanted both, and the tile is in the cache by then.
  struct Pass {
    Loop<Stored> loop;
    bool values;
    bool gradients;
  } passes[2] = {};
  if (sum && !incoming.each()) {
    passes[0] = {Loops<Stored>::sum(gradients), false, true};
  } else {
    if (sum) passes[0] = {Loops<Stored>::sum(0), false, false};
    if (values) passes[0] = {Loops<Stored>::value(), true, false};
    if (gradients) passes[1] = {Loops<Stored>::gradient(gradients, incoming.each()), false, true};
  }
  if (!passes[0].loop && !passes[1].loop) return incoming.note();

  const int64_t chunk = chunk_size(size), chunks = divide_up(size, chunk);
#ifdef LOSSCLI_STRATEGIES
  StrategySums sums(arguments.strategy, sum ? chunks : 0);
#else
  PartialSums sums(sum ? chunks : 0);
#endif
  parallel_ranges(context, chunks, [&](int64_t first_chunk, int64_t last_chunk) {
    const Loss<Real> loss(arguments.parameters);
    Reader<Stored> operands[kOperands], grad_output;
    for (int k = 0; k < kOperands; ++k)
      operands[k].open(arguments.operands[k], arguments.space, true);
    if (incoming.each()) grad_output.open(arguments.grad_output, arguments.space, true);
    Writer<Stored> value, written[kOperands];
    value.open(values, arguments.dtype, size);
    for (int k = 0; k < kOperands; ++k)
      if (gradients >> k & 1)
        written[k].open(arguments.gradients[k], arguments.operands[k].dtype, size);

    LossTile<Stored> tile;
    tile.scale = static_cast<Real>(arguments.scale * incoming.factor());
    for (int64_t c = first_chunk; c < last_chunk; ++c) {
      const int64_t begin = c * chunk, end = std::min(begin + chunk, size);
      Compensated chunk_sum;
      for (int64_t first = begin; first < end; first += kTile) {
        tile.count = std::min(kTile, end - first);
        for (int k = 0; k < kOperands; ++k) tile.operands[k] = operands[k].take(first, tile.count);
        if (incoming.each()) tile.grad_output = grad_output.take(first, tile.count);
        for (const Pass& pass : passes) {
          if (!pass.loop) continue;
          tile.value = pass.values ? value.place(first) : TileOutput<Stored>();
          for (int k = 0; k < kOperands; ++k)
            tile.gradients[k] = pass.gradients ? written[k].place(first) : TileOutput<Stored>();
          chunk_sum.add(Loops<Stored>::run(pass.loop, loss, tile));
        }
        value.finish(first, tile.count);
        for (int k = 0; k < kOperands; ++k) written[k].finish(first, tile.count);
      }
      if (sum) sums.put(c, chunk_sum);
    }
    end_stream();
  });

  if (sum) {
#ifdef LOSSCLI_STRATEGIES
    if (arguments.strategy == Strategy::torch_sum) {
      sums.leave(static_cast<double*>(arguments.value));
      return incoming.note();
    }
    const Compensated total = sums.total(context);
#else
    const Compensated total = sums.total();
#endif
    const double result = scaled(total, arguments.scale, size);
    with_floating_type(arguments.dtype, [&](auto stored) {
      using Value = decltype(stored);
      *static_cast<Value*>(arguments.value) = from_real<Value>(static_cast<Real>(result));
    });
  }
  incoming.note();
}

// Whether all that a pass reads and writes is of its own dtype.
bool is_uniform(const ElementwiseArguments& arguments) {
  for (int k = 0; k < kOperands; ++k)
    if (arguments.operands[k].dtype != arguments.dtype) return false;
  const Operand& grad_output = arguments.grad_output;
  return !grad_output.data || grad_output.dtype == arguments.dtype ||
         is_scalar(grad_output, arguments.space);
}

}  // namespace

int64_t partial_sums(const ElementwiseArguments& arguments, const DeviceFacts&) {
  return divide_up(arguments.space.size, chunk_size(arguments.space.size));
}

Status elementwise(const ElementwiseArguments& arguments, const LaunchContext& context) {
#ifndef LOSSCLI_STRATEGIES
  if (arguments.strategy != Strategy::single_pass)
    return Status::failure(StatusCode::failed,
                           "this library finishes sums in one pass only; the other strategies are "
                           "in a library of their own");
#endif
  return guarded([&] {
    // Mixed dtypes are converted a tile at a time; 16 bits alone are as fast as float only where
    // they are converted in the loop.
    const bool as_stored = arguments.dtype == DType::float64 || is_uniform(arguments);
    with_floating_type(as_stored ? arguments.dtype : DType::float32,
                       [&](auto stored) { run<decltype(stored)>(arguments, context); });
  });
}

}  // namespace losscli::cpu
