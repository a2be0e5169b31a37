// Sums the gradient of an operand over the elements of the space that share it.
//
// The space is a matrix: along one side the operand's own elements, along the other what repeats
// them. The side that is fastest in memory makes the rows. How the work is divided follows from the
// sizes alone, so that the result does not depend on the number of threads.
#include <algorithm>
#include <memory>

#include "core/cpu/parallel.h"
#include "elementwise/cpu/incoming.h"
#include "elementwise/cpu/loops.h"
#include "elementwise/cpu/loss.h"
#include "elementwise/cpu/reader.h"
#include "elementwise/cpu/stream.h"
#include "reduce/cpu/lanes.h"

namespace losscli::cpu {
namespace {

// Parts of the work, if there is enough of it.
constexpr int64_t kParts = 64;

// The arguments as a matrix of `rows` rows, each of `columns` elements, in the order of memory.
struct Matrix {
  explicit Matrix(const SharedGradientArguments& given) : arguments(given) {
    const int kept = given.kept, all = given.space.dimensions;
    const int first = given.repeats_fastest ? kept : 0;
    const int first_end = given.repeats_fastest ? all : kept;
    int at = 0;
    const auto take = [&](int d) {
      order[at] = d;
      arguments.space.sizes[at++] = given.space.sizes[d];
    };
    for (int d = first; d < first_end; ++d) take(d);
    for (int d = 0; d < at; ++d) columns *= arguments.space.sizes[d];
    for (int d = 0; d < all; ++d)
      if (d < first || d >= first_end) take(d);
    for (int d = first_end - first; d < all; ++d) rows *= arguments.space.sizes[d];
    for (int k = 0; k < kOperands; ++k) rearrange(arguments.operands[k], given.operands[k]);
    rearrange(arguments.grad_output, given.grad_output);
    each = given.grad_output.data && !is_scalar(given.grad_output, given.space);
    factor = each ? 1.0 : read_number(given.grad_output);
  }

  void rearrange(Operand& operand, const Operand& given) const {
    for (int at = 0; at < arguments.space.dimensions; ++at)
      operand.strides[at] = given.strides[order[at]];
  }

  SharedGradientArguments arguments;
  int order[kMostDimensions] = {};
  int64_t rows = 1, columns = 1;
  bool each = false;  // whether each element has its own upstream gradient
  double factor = 1;  // where all share one

  int64_t kept() const { return arguments.repeats_fastest ? rows : columns; }
};

// Computes the shared operand's gradients of a run of elements, not yet scaled.
template <typename Real>
class Gradients {
 public:
  explicit Gradients(const Matrix& matrix) : loss_(matrix.arguments.parameters) {
    const SharedGradientArguments& arguments = matrix.arguments;
    for (int k = 0; k < kOperands; ++k)
      operands_[k].open(arguments.operands[k], arguments.space, false);
    if (matrix.each) grad_output_.open(arguments.grad_output, arguments.space, false);
    each_ = matrix.each;
    loop_ = Loops<Real>::gradient(1u << arguments.shared, each_);
    tile_.scale = static_cast<Real>(matrix.factor);
    tile_.gradients[arguments.shared] = {buffer_, false};
  }

  // At most a tile of them; valid until the next call.
  const Real* take(int64_t first, int64_t count) {
    tile_.count = count;
    for (int k = 0; k < kOperands; ++k) tile_.operands[k] = operands_[k].take(first, count);
    if (each_) tile_.grad_output = grad_output_.take(first, count);
    Loops<Real>::run(loop_, loss_, tile_);
    return buffer_;
  }

 private:
  Loss<Real> loss_;
  Reader<Real> operands_[kOperands], grad_output_;
  bool each_ = false;
  Loop<Real> loop_ = nullptr;
  LossTile<Real> tile_;
  alignas(kLine) Real buffer_[kTile];
};

// Writes the sums of elements [first, first + count) of the operand.
template <typename Real>
void write(const SharedGradientArguments& arguments, int64_t first, const Compensated* sums,
           int64_t count) {
  with_floating_type(arguments.operands[arguments.shared].dtype, [&](auto stored) {
    using Stored = decltype(stored);
    auto* const out = static_cast<Stored*>(arguments.gradient) + first;
    for (int64_t i = 0; i < count; ++i)
      out[i] = from_real<Stored>(static_cast<Real>(scaled(sums[i], arguments.scale, 0)));
  });
}

// Each row has an element for each of the operand's: rows are added up, a tile's width of columns
// at a time, or several whole rows where they are short.
template <typename Real>
void sum_rows(const Matrix& matrix, const LaunchContext& context) {
  const int64_t columns = matrix.columns;
  const int64_t width = std::min(columns, kTile);
  const int64_t together = columns < kTile ? kTile / columns : 1;  // rows that a tile takes
  const int64_t steps = divide_up(matrix.rows, together);
  const int64_t widths = divide_up(columns, width);
  const int64_t bands = std::clamp<int64_t>(divide_up(kParts, widths), 1, steps);
  const int64_t band = divide_up(steps, bands);
  std::unique_ptr<Compensated[]> sums(bands > 1 ? new Compensated[bands * columns] : nullptr);

  parallel_ranges(context, widths * bands, [&](int64_t first_part, int64_t last_part) {
    Gradients<Real> gradients(matrix);
    for (int64_t part = first_part; part < last_part; ++part) {
      const int64_t first_column = part % widths * width;
      const int64_t count = std::min(width, columns - first_column);
      const int64_t first_step = part / widths * band;
      const int64_t last_step = std::min(first_step + band, steps);
      LaneSums<Real, kTile> parts;
      for (int64_t step = first_step; step < last_step; ++step) {
        const int64_t row = step * together;
        const int64_t elements = count * std::min(together, matrix.rows - row);
        add_lanes(parts, gradients.take(row * columns + first_column, elements), elements);
      }
      Compensated totals[kTile];
      for (int64_t i = 0; i < count; ++i)
        for (int64_t row = 0; row < together; ++row) totals[i].add(parts.at(row * count + i));
      if (sums)
        std::copy_n(totals, count, &sums[part / widths * columns + first_column]);
      else
        write<Real>(matrix.arguments, first_column, totals, count);
    }
  });
  if (!sums) return;
  parallel(context, widths, [&](int64_t part) {
    const int64_t first = part * width, count = std::min(width, columns - first);
    Compensated totals[kTile];
    for (int64_t b = 0; b < bands; ++b)
      for (int64_t i = 0; i < count; ++i) totals[i].add(sums[b * columns + first + i]);
    write<Real>(matrix.arguments, first, totals, count);
  });
}

template <typename Real>
Compensated sum_run(const Real* values, int64_t count) {
  if (count >= 4 * kLanes) return lane_sum<kLanes>(values, count);
  if (count >= 32) return lane_sum<16>(values, count);
  Compensated sum;
  for (int64_t i = 0; i < count; ++i) sum.add(values[i]);
  return sum;
}

// All elements of a row share one of the operand's: each row is added up by itself, several of them
// in a tile where they are short, in parts where they are few.
template <typename Real>
void sum_columns(const Matrix& matrix, const LaunchContext& context) {
  const int64_t rows = matrix.rows, columns = matrix.columns;
  if (columns <= kTile) {
    const int64_t together = kTile / columns;
    parallel_ranges(context, divide_up(rows, together), [&](int64_t first, int64_t last) {
      Gradients<Real> gradients(matrix);
      for (int64_t tile = first; tile < last; ++tile) {
        const int64_t row = tile * together, count = std::min(together, rows - row);
        const Real* const values = gradients.take(row * columns, count * columns);
        Compensated sums[kTile];
        for (int64_t i = 0; i < count; ++i) sums[i] = sum_run(values + i * columns, columns);
        write<Real>(matrix.arguments, row, sums, count);
      }
    });
    return;
  }
  const int64_t tiles = divide_up(columns, kTile);
  const int64_t bands = std::clamp<int64_t>(divide_up(kParts, rows), 1, tiles);
  const int64_t band = divide_up(tiles, bands) * kTile;
  std::unique_ptr<Compensated[]> sums(bands > 1 ? new Compensated[rows * bands] : nullptr);
  parallel_ranges(context, rows * bands, [&](int64_t first_part, int64_t last_part) {
    Gradients<Real> gradients(matrix);
    for (int64_t part = first_part; part < last_part; ++part) {
      const int64_t row = part / bands, begin = part % bands * band;
      const int64_t end = std::min(begin + band, columns);
      Compensated sum;
      for (int64_t first = begin; first < end; first += kTile) {
        const int64_t count = std::min(kTile, end - first);
        sum.add(sum_run(gradients.take(row * columns + first, count), count));
      }
      if (sums)
        sums[part] = sum;
      else
        write<Real>(matrix.arguments, row, &sum, 1);
    }
  });
  for (int64_t row = 0; sums && row < rows; ++row) {
    Compensated total;
    for (int64_t b = 0; b < bands; ++b) total.add(sums[row * bands + b]);
    write<Real>(matrix.arguments, row, &total, 1);
  }
}

template <typename Real>
void run(const SharedGradientArguments& arguments, const LaunchContext& context) {
  const Matrix matrix(arguments);
  if (arguments.space.size == 0) {
    const Compensated zero;
    for (int64_t i = 0; i < matrix.kept(); ++i) write<Real>(arguments, i, &zero, 1);
  } else if (arguments.repeats_fastest) {
    sum_columns<Real>(matrix, context);
  } else {
    sum_rows<Real>(matrix, context);
  }
}

}  // namespace

Status shared_gradient(const SharedGradientArguments& arguments, const LaunchContext& context) {
  return guarded([&] {
    arguments.dtype == DType::float64 ? run<double>(arguments, context)
                                      : run<float>(arguments, context);
  });
}

}  // namespace losscli::cpu
