// Walks an iteration space in tiles: loads operands of any dtype and layout, hands them to the
// loss's loop, stores what comes out.
#include "engine.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "chunk_sums.h"
#include "convert.h"
#include "lanes.h"
#include "parallel.h"
#include "reader.h"
#include "stream.h"
#include "tile.h"

namespace losscli::cpu {

const TileFunctions& tile_functions(LossId loss);

namespace {

// What one thread takes at a time. Sums are kept for each chunk and added in order, so that the
// result does not depend on the number of threads.
constexpr int64_t kChunk = 64 * kTile;

// Slices of the work on the gradient of a shared operand, whatever the number of threads.
constexpr int64_t kSharedSlices = 64;

// From so many bytes an output goes past the caches, which it would leave before anyone reads it,
// and is not read before it is written. Two cores, smooth L1 with its gradient, float32: 256 MiB
// take 23.4 ms (28.8 through the caches), 32 MiB 3.3 ms (4.4), 16 MiB 1.26 ms (1.36); 8 MiB are
// faster through the caches, 0.39 ms (0.45).
constexpr int64_t kStreamBytes = int64_t{1} << 25;

template <typename Stored>
double scalar(const Operand& operand) {
  return operand.data ? widen(*static_cast<const Stored*>(operand.data)) : 1.0;
}

template <typename Stored>
bool streams(const LossArguments& arguments) {
  if (arguments.size * static_cast<int64_t>(sizeof(Stored)) < kStreamBytes) return false;
  return can_stream(arguments.grad_input) && can_stream(arguments.grad_target) &&
         (arguments.reduce || can_stream(arguments.value));
}

template <typename Stored>
void loss(const LossArguments& arguments, const LaunchContext& context) {
  using Real = RealOf<Stored>;
  const auto function = std::get<LossFunction<Stored>>(tile_functions(arguments.loss));
  const bool sum = arguments.reduce && arguments.value;
  const bool one_gradient = arguments.grad_output.period == 1;
  const double factor = one_gradient ? scalar<Stored>(arguments.grad_output) : 1.0;
  if (arguments.skip_unit_gradient && factor == 1.0) return;

  const int64_t chunks = divide_up(arguments.size, kChunk);
  const bool leave_sums = sum && arguments.strategy == Strategy::torch_sum;
  ChunkSums sums(arguments.strategy, sum ? chunks : 0,
                 leave_sums ? static_cast<double*>(arguments.value) : nullptr);
  const auto at = [](void* data, int64_t first) {
    return data ? static_cast<Stored*>(data) + first : nullptr;
  };
  const bool stream = streams<Stored>(arguments);
  parallel(context, chunks, [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk, end = std::min(begin + kChunk, arguments.size);
    Reader<Stored> input(arguments.input), target(arguments.target);
    Reader<Stored> grad_output(arguments.grad_output);
    double chunk_sum = 0;
    for (int64_t first = begin; first < end; first += kTile) {
      const int64_t count = std::min(kTile, end - first);
      const LossTile<Stored> tile{
          count,
          input.take(first, count),
          target.take(first, count),
          one_gradient ? nullptr : grad_output.take(first, count),
          static_cast<Real>(arguments.scale * factor),
          at(sum ? nullptr : arguments.value, first),
          at(arguments.grad_input, first),
          at(arguments.grad_target, first),
          stream,
      };
      chunk_sum += function(arguments.parameters, tile, sum);
    }
    if (stream) end_stream();
    if (sum) sums.put(chunk, chunk_sum);
  });

  if (sum && !leave_sums)
    narrow(static_cast<Real>(sums.total(context) * arguments.scale),
           *static_cast<Stored*>(arguments.value));
}

// Add a tile's gradients to the sums of the elements that share them; `within` is the position of
// the tile's first element in its row of `period * inner` elements.
template <typename Real>
void accumulate(const Real* gradient, int64_t count, int64_t within, const Operand& shared,
                int64_t first_element, double* sums) {
  int64_t element = within / shared.inner;
  if (shared.inner == 1 && element + count <= shared.period) {
    double* out = sums + (element - first_element);
    for (int64_t i = 0; i < count; ++i) out[i] += gradient[i];
    return;
  }
  int64_t left = shared.period == 1 ? count : shared.inner - within % shared.inner;
  for (int64_t done = 0; done < count;) {
    const int64_t run = std::min(left, count - done);
    sums[element - first_element] += lane_sum<double>(gradient + done, run);
    done += run;
    left = shared.inner;
    if (++element == shared.period) element = 0;
  }
}

template <typename Stored>
void shared_gradient(const SharedGradientArguments& arguments, const LaunchContext& context) {
  using Real = RealOf<Stored>;
  const auto function = std::get<LossFunction<Real>>(tile_functions(arguments.loss));
  const Operand& shared = arguments.for_target ? arguments.target : arguments.input;
  const bool one_gradient = arguments.grad_output.period == 1;
  const double factor = one_gradient ? scalar<Stored>(arguments.grad_output) : 1.0;
  auto* out = static_cast<Stored*>(arguments.gradient);

  const int64_t row = shared.period * shared.inner;
  const int64_t rows = row ? arguments.size / row : 0;
  // A slice is a range of elements by a range of rows; the ranges of rows are added at the end.
  const int64_t width = std::clamp<int64_t>(kTile / shared.inner, 1, shared.period);
  const int64_t widths = divide_up(shared.period, width);
  const int64_t bands = std::max<int64_t>(1, std::min(rows, divide_up(kSharedSlices, widths)));
  const int64_t band = divide_up(rows, bands);
  std::vector<double> sums(bands > 1 ? bands * shared.period : 0);

  parallel(context, widths * bands, [&](int64_t slice) {
    Reader<Stored, Real> input(arguments.input), target(arguments.target);
    Reader<Stored, Real> grad_output(arguments.grad_output);
    alignas(64) Real gradient[kTile];
    double slice_sums[kTile] = {};
    const int64_t first_element = slice % widths * width;
    const int64_t last_element = std::min(first_element + width, shared.period);
    const int64_t first_row = slice / widths * band;
    const int64_t last_row = std::min(first_row + band, rows);
    // Rows that are taken whole lie one behind the other: walk them as one.
    const bool whole = first_element == 0 && last_element == shared.period;
    const int64_t runs = last_row <= first_row ? 0 : whole ? 1 : last_row - first_row;
    const int64_t run = (last_element - first_element) * shared.inner *
                        (whole ? std::max<int64_t>(last_row - first_row, 0) : 1);
    for (int64_t r = 0; r < runs; ++r) {
      const int64_t start = (first_row + r) * row + first_element * shared.inner;
      for (int64_t done = 0; done < run; done += kTile) {
        const int64_t first = start + done;
        const int64_t count = std::min(kTile, run - done);
        const LossTile<Real> tile{
            count,
            input.take(first, count),
            target.take(first, count),
            one_gradient ? nullptr : grad_output.take(first, count),
            static_cast<Real>(factor),
            nullptr,
            arguments.for_target ? nullptr : gradient,
            arguments.for_target ? gradient : nullptr,
            false,
        };
        function(arguments.parameters, tile, false);
        accumulate(gradient, count, first % row, shared, first_element, slice_sums);
      }
    }
    for (int64_t element = first_element; element < last_element; ++element) {
      const double sum = slice_sums[element - first_element];
      if (bands > 1)
        sums[slice / widths * shared.period + element] = sum;
      else
        narrow(static_cast<Real>(sum * arguments.scale), out[element]);
    }
  });

  // The bands in order, whatever the number of threads.
  parallel(context, bands > 1 ? widths : 0, [&](int64_t part) {
    double totals[kTile] = {};
    const int64_t first = part * width, count = std::min(width, shared.period - first);
    for (int64_t b = 0; b < bands; ++b) {
      const double* const band_sums = sums.data() + b * shared.period + first;
      for (int64_t i = 0; i < count; ++i) totals[i] += band_sums[i];
    }
    for (int64_t i = 0; i < count; ++i)
      narrow(static_cast<Real>(totals[i] * arguments.scale), out[first + i]);
  });
}

// Where a tile's results go: straight to memory where the dtype allows, else through a buffer.
template <typename Stored>
class Output {
 public:
  using Real = RealOf<Stored>;

  Output(void* data, int64_t first) : stored_(static_cast<Stored*>(data) + first) {}

  Real* tile() {
    if constexpr (std::is_same_v<Stored, Real>) return stored_;
    return buffer_;
  }

  void store(int64_t count) {
    if constexpr (!std::is_same_v<Stored, Real>) narrow(buffer_, stored_, count);
  }

 private:
  Stored* stored_;
  alignas(64) Real buffer_[std::is_same_v<Stored, Real> ? 1 : kTile];
};

template <typename Stored>
void double_backward(const DoubleBackwardArguments& arguments, const LaunchContext& context) {
  using Real = RealOf<Stored>;
  const auto function = std::get<DoubleBackwardFunction<Real>>(tile_functions(arguments.loss));
  const auto flat = [&](const void* data) { return Operand{data, 1, arguments.size}; };
  parallel(context, divide_up(arguments.size, kChunk), [&](int64_t chunk) {
    Reader<Stored, Real> input(flat(arguments.input)), target(flat(arguments.target));
    Reader<Stored, Real> grad_output(arguments.grad_output);
    Reader<Stored, Real> toward_input(flat(arguments.grad_grad_input));
    Reader<Stored, Real> toward_target(flat(arguments.grad_grad_target));
    const int64_t end = std::min((chunk + 1) * kChunk, arguments.size);
    for (int64_t first = chunk * kChunk; first < end; first += kTile) {
      const int64_t count = std::min(kTile, end - first);
      Output<Stored> grad_grad_output(arguments.grad_grad_output, first);
      Output<Stored> grad_input(arguments.grad_input, first);
      Output<Stored> grad_target(arguments.grad_target, first);
      function(arguments.parameters, {
                                         count,
                                         input.take(first, count),
                                         target.take(first, count),
                                         grad_output.take(first, count),
                                         toward_input.take(first, count),
                                         toward_target.take(first, count),
                                         static_cast<Real>(arguments.scale),
                                         grad_grad_output.tile(),
                                         grad_input.tile(),
                                         grad_target.tile(),
                                     });
      grad_grad_output.store(count);
      grad_input.store(count);
      grad_target.store(count);
    }
  });
}

// Run the instance for a dtype.
#define LOSSCLI_FOR_DTYPE(function)                         \
  [](const auto& arguments, const LaunchContext& context) { \
    switch (arguments.dtype) {                              \
      case DType::float32:                                  \
        return function<float>(arguments, context);         \
      case DType::float64:                                  \
        return function<double>(arguments, context);        \
      case DType::float16:                                  \
        return function<Half>(arguments, context);          \
      case DType::bfloat16:                                 \
        return function<BFloat16>(arguments, context);      \
    }                                                       \
  }

}  // namespace

#define LOSSCLI_DECLARE(name) extern const TileFunctions name##_tiles;
LOSSCLI_FOR_EACH_LOSS(LOSSCLI_DECLARE)
#undef LOSSCLI_DECLARE

const TileFunctions& tile_functions(LossId loss) {
  static const TileFunctions* const table[] = {
#define LOSSCLI_ENTRY(name) &name##_tiles,
      LOSSCLI_FOR_EACH_LOSS(LOSSCLI_ENTRY)
#undef LOSSCLI_ENTRY
  };
  return *table[static_cast<int>(loss)];
}

const Engine engine{
    [](const LossArguments& arguments) { return divide_up(arguments.size, kChunk); },
    [](const LossArguments&) -> size_t { return 0; },
    LOSSCLI_FOR_DTYPE(loss),
    [](const SharedGradientArguments&) -> size_t { return 0; },
    LOSSCLI_FOR_DTYPE(shared_gradient),
    LOSSCLI_FOR_DTYPE(double_backward),
};

}  // namespace losscli::cpu
