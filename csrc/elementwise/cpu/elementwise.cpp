// Walks a space in tiles: reads operands of any dtype and layout, hands them to the loss's loop,
// writes what comes out.
#include <algorithm>

#include "core/cpu/parallel.h"
#include "elementwise/cpu/entry.h"
#include "elementwise/cpu/guarded.h"
#include "elementwise/cpu/incoming.h"
#include "elementwise/cpu/loops.h"
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

// One value an element: the number that a sum over everything adds up.
constexpr int kTerms = 1;

template <typename Real>
void run(const ElementwiseArguments& arguments, const LaunchContext& context) {
  const int64_t size = arguments.space.size;
  const bool sum = arguments.reduce && arguments.value;
  const Incoming incoming(arguments);
  unsigned gradients = 0;
  if (incoming.wanted())
    for (int k = 0; k < kOperands; ++k) gradients |= (arguments.gradients[k] ? 1u : 0u) << k;
  void* const values = sum ? nullptr : arguments.value;

  // Values and gradients of full size one after the other: they are rarely wanted both, and the
  // tile is in the cache by then.
  Loop<Real> loops[2] = {};
  if (sum && !incoming.each()) {
    loops[0] = sum_loop<Real>(gradients);
  } else {
    if (sum) loops[0] = sum_loop<Real>(0);
    if (values) loops[0] = value_loop<Real>();
    if (gradients) loops[1] = gradient_loop<Real>(gradients, incoming.each());
  }
  if (!loops[0] && !loops[1]) return incoming.note();

  const int64_t chunk = chunk_size(size), chunks = divide_up(size, chunk);
#ifdef LOSSCLI_STRATEGIES
  StrategySums<kTerms> sums(arguments.strategy, sum ? chunks : 0);
#else
  PartialSums<kTerms> sums(sum ? chunks : 0);
#endif
  parallel_ranges(context, chunks, [&](int64_t first_chunk, int64_t last_chunk) {
    const Loss<Real> loss(arguments.parameters);
    Reader<Real> operands[kOperands], grad_output;
    for (int k = 0; k < kOperands; ++k)
      operands[k].open(arguments.operands[k], arguments.space, arguments.dtype, true);
    if (incoming.each())
      grad_output.open(arguments.grad_output, arguments.space, kRealDType<Real>, true);
    Writer<Real> value, written[kOperands];
    value.open(values, arguments.dtype, size);
    for (int k = 0; k < kOperands; ++k)
      if (gradients >> k & 1)
        written[k].open(arguments.gradients[k], arguments.operands[k].dtype, size);

    LossTile<Real> tile;
    tile.scale = static_cast<Real>(arguments.scale * incoming.factor());
    for (int64_t c = first_chunk; c < last_chunk; ++c) {
      const int64_t begin = c * chunk, end = std::min(begin + chunk, size);
      PartialSum<kTerms> chunk_sum;
      for (int64_t first = begin; first < end; first += kTile) {
        tile.count = std::min(kTile, end - first);
        for (int k = 0; k < kOperands; ++k) tile.operands[k] = operands[k].take(first, tile.count);
        if (incoming.each()) tile.grad_output = grad_output.take(first, tile.count);
        tile.value = value.place(first);
        for (int k = 0; k < kOperands; ++k) tile.gradients[k] = written[k].place(first);
        for (const Loop<Real> loop : loops)
          if (loop) chunk_sum.terms[0].add(run_loop(loop, loss, tile));
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
    const auto total = sums.total(context);
#else
    const auto total = sums.total();
#endif
    const double result = scaled(total.terms[0], arguments.scale, size);
    with_floating_type(arguments.dtype, [&](auto stored) {
      using Stored = decltype(stored);
      *static_cast<Stored*>(arguments.value) = from_real<Stored>(static_cast<Real>(result));
    });
  }
  incoming.note();
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
    arguments.dtype == DType::float64 ? run<double>(arguments, context)
                                      : run<float>(arguments, context);
  });
}

}  // namespace losscli::cpu
