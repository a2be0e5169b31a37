// A pass over operands whose lines along the first dimension are short, or whose second operand
// repeats along the second one, in packs. A block takes a panel: threads side by side along the
// first dimensions, and along the next one so many rows, several times over. Where a thread stands
// in a panel is found once; a panel's place takes a division for each dimension that is left, and
// what a thread reads there is so many steps apart. A second operand that repeats along these steps
// is read once.
#pragma once

#include <algorithm>

#include "elementwise/cuda/any_layout.cuh"

namespace losscli::cuda {

// How a space is divided into panels; places along the first dimension are packs.
struct PanelPlan {
  int across = 0;     // the dimension of which a panel takes a piece; all of those before it
  int64_t inner = 1;  // places of all dimensions before it
  int64_t wide = 1;   // places of a piece along it
  int64_t pieces = 1;
  int64_t high = 1;      // rows, which go along the next dimension, that threads take at a time
  int64_t segments = 1;  // of so many rows times loads
  int64_t tiles = 0;
  double filled = 0;  // of the places that a block has in a panel
};

inline int64_t panel_size(const Space& space, int d, int count) {
  return d == 0 ? space.sizes[0] / count : space.sizes[d];
}

// One plan: the dimensions before `across` are whole, it is cut into so many pieces.
inline PanelPlan plan_panel(const Space& space, int count, int threads, int loads, int across,
                            int64_t inner, int64_t pieces) {
  const auto pieces_of = [](int64_t size, int64_t& piece) {  // pieces alike
    const int64_t number = divide_up(size, piece);
    piece = divide_up(size, number);
    return number;
  };
  PanelPlan plan;
  const int64_t size = panel_size(space, across, count), rows = space.sizes[across + 1];
  plan.across = across;
  plan.inner = inner;
  plan.wide = divide_up(size, pieces);
  plan.pieces = pieces_of(size, plan.wide);
  int64_t segment = std::max<int64_t>(threads / (inner * plan.wide), 1) * loads;
  plan.segments = pieces_of(rows, segment);
  plan.high = divide_up(segment, loads);
  plan.segments = divide_up(rows, plan.high * loads);
  const int64_t of_plane = plan.pieces * plan.segments;
  const int64_t planes = space.size / count / (inner * size * rows);
  plan.tiles = of_plane * planes;
  plan.filled =
      static_cast<double>(inner * size * rows) / static_cast<double>(of_plane * threads * loads);
  return plan;
}

// The plan that fills panels best, or the first that does well enough; there are two dimensions at
// least, and elements. Where an operand is to repeat along the rows, none that does not half fill
// them: panels without it do.
inline PanelPlan plan_panels(const Space& space, int count, int threads, int loads,
                             const Operand* repeating) {
  constexpr double kEnough = 0.8, kLeast = 0.5;
  constexpr int kMostPieces = 4;  // more than it takes
  PanelPlan best;
  int64_t inner = 1;
  for (int across = 0; across + 1 < space.dimensions && inner <= threads; ++across) {
    const int64_t size = panel_size(space, across, count);
    const int64_t least = divide_up(size, threads / inner);
    const bool takes = !repeating || repeating->strides[across + 1] == 0;
    for (int64_t pieces = least; takes && pieces < least + kMostPieces && pieces <= size;
         ++pieces) {
      const PanelPlan plan = plan_panel(space, count, threads, loads, across, inner, pieces);
      if (plan.filled > best.filled) best = plan;
      if (best.filled >= kEnough) return best;
    }
    inner *= size;
  }
  if (repeating && best.filled < kLeast) return {};
  return best;
}

// What threads and panels are divided by, and the strides in bytes, a dimension at a time:
// arguments come a line of the constant cache at a time.
template <int reads>
struct PanelDimension {
  Divisor size;  // for threads the part that they take
  int64_t strides[reads];
};

struct PanelOperand {
  const char* data;
  DType dtype;
  bool repeats;   // along a pack
  uint32_t step;  // from one row to the next
};

template <int reads, int operand_count>
struct PanelArguments {
  int32_t across;
  int32_t dimensions;
  uint32_t wide, high;
  uint32_t plane;  // places of the first dimensions that threads take
  uint32_t rows;   // along the next dimension
  uint32_t tiles;
  uint32_t row_size;  // elements from one row to the next, in the outputs
  int64_t size_across;
  int64_t inner_elements;
  PanelOperand operands[reads];
  Divisor pieces, segments;
  PanelDimension<reads> places[kMostDimensions];
  Results<operand_count> results;

  template <typename Find>
  PanelArguments(const ElementwiseArguments& arguments, const GridSum& memory,
                 const PanelPlan& plan, int count, Find find)
      : across(plan.across),
        dimensions(arguments.space.dimensions),
        wide(static_cast<uint32_t>(plan.wide)),
        high(static_cast<uint32_t>(plan.high)),
        plane(static_cast<uint32_t>(plan.inner * plan.wide)),
        rows(static_cast<uint32_t>(arguments.space.sizes[plan.across + 1])),
        tiles(static_cast<uint32_t>(plan.tiles)),
        size_across(panel_size(arguments.space, plan.across, count)),
        inner_elements(plan.inner * count),
        pieces(plan.pieces),
        segments(plan.segments),
        results(arguments, memory, reads > operand_count) {
    row_size = static_cast<uint32_t>(size_across * inner_elements);
    for (int k = 0; k < reads; ++k) {
      const Operand& from = find(k);
      const int64_t bytes = item_bytes(from.dtype);
      operands[k].data = static_cast<const char*>(from.data);
      operands[k].dtype = from.dtype;
      operands[k].repeats = from.strides[0] == 0;
      operands[k].step = static_cast<uint32_t>(from.strides[across + 1] * bytes);
      for (int d = 0; d < dimensions; ++d)
        places[d].strides[k] = from.strides[d] * bytes * (d == 0 ? count : 1);
    }
    for (int d = 0; d < dimensions; ++d)
      places[d].size = Divisor(d == across ? plan.wide : panel_size(arguments.space, d, count));
  }
};

// Whether panels are counted in 32 bits, and rows of every operand so many bytes apart.
template <typename Loss, typename Pass>
bool takes_panels(const ElementwiseArguments& arguments, const PanelPlan& plan, int loads) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const Space& space = arguments.space;
  const int64_t rows = space.sizes[plan.across + 1];
  int64_t row_size = 1;
  for (int d = 0; d <= plan.across; ++d) row_size *= space.sizes[d];
  bool takes =
      plan.tiles > 0 && plan.tiles < kMost && rows + plan.high * loads < kMost && row_size < kMost;
  for (int k = 0; k < kReads<Loss, Pass>; ++k) {
    const Operand& operand = read_operand<Loss, Pass>(arguments, k);
    const int64_t step = operand.strides[plan.across + 1] * item_bytes(operand.dtype);
    takes &= step >= 0 && step < kMost * 2;
  }
  return takes;
}

// The second operand, which may repeat along the rows.
enum class Second {
  as_others,
  repeats,
  repeats_alike
};  // alike: its items are as large as others'

// In packs of 8 operands are of 2 bytes an item, but for a second one that repeats otherwise.
template <typename Loss, typename Real, typename Pass, int count, typename Shape, Second kSecond>
__global__ void __launch_bounds__(Shape::threads, Shape::resident) loss_panels_kernel(
    const Loss loss, const PanelArguments<kReads<Loss, Pass>, Loss::signature.operands> arguments) {
  using Sum = SumOf<Real>;
  constexpr int kOperands = kReads<Loss, Pass>, kLoads = Shape::loads;
  constexpr bool kRepeats = kSecond != Second::as_others;
  constexpr int kItem = count * sizeof(Real) > kPackBytes ? 2 : 0;
  constexpr int kSecondItem = kSecond == Second::repeats_alike ? kItem : 0;

  Incoming incoming;
  if (!incoming.read<Pass>(arguments.results.incoming)) return;
  const auto finish = [&](const Sum& total) { put_total<Sum, Real>(arguments.results, total); };
  Blocks blocks;
  if (!find_block<Sum, Pass, Shape>(arguments.results.memory, blocks, finish)) return;

  // Where this thread stands.
  unsigned row = threadIdx.x, column = 0;
  int64_t own[kOperands] = {};
#pragma unroll 1
  for (int d = 0; d <= arguments.across; ++d) {
    const auto& place = arguments.places[d];
    const unsigned next = place.size.divide_small(row);
    column = row - next * static_cast<unsigned>(place.size.value);
    row = next;
#pragma unroll
    for (int k = 0; k < kOperands; ++k) own[k] += column * place.strides[k];
  }
  const unsigned own_out = (threadIdx.x - row * arguments.plane) * count;
  const bool stands = row < arguments.high;

  Sum carried;
  for (unsigned tile = blocks.index; tile < arguments.tiles; tile += blocks.count) {
    unsigned rest = arguments.pieces.divide_small(tile);
    const unsigned piece = tile - rest * static_cast<unsigned>(arguments.pieces.value);
    unsigned plane = arguments.segments.divide_small(rest);
    const unsigned segment = rest - plane * static_cast<unsigned>(arguments.segments.value);
    const unsigned first_column = piece * arguments.wide;
    const unsigned first_row = segment * arguments.high * kLoads;
    const bool inside = stands && first_column + column < arguments.size_across;
    const unsigned last = arguments.rows - first_row - 1;
    int64_t out =
        first_column * arguments.inner_elements + own_out +
        (static_cast<int64_t>(plane) * arguments.rows + first_row + row) * arguments.row_size;
    const char* bases[kOperands];
#pragma unroll
    for (int k = 0; k < kOperands; ++k)
      bases[k] = arguments.operands[k].data + (inside ? own[k] : 0) +
                 first_column * arguments.places[arguments.across].strides[k] +
                 static_cast<uint64_t>(first_row) * arguments.operands[k].step;
#pragma unroll 1
    for (int d = arguments.across + 2; d < arguments.dimensions; ++d) {
      const auto& place = arguments.places[d];
      const unsigned next = place.size.divide_small(plane);
      const unsigned at = plane - next * static_cast<unsigned>(place.size.value);
      plane = next;
#pragma unroll
      for (int k = 0; k < kOperands; ++k) bases[k] += at * place.strides[k];
    }

    const auto row_at = [&](int u) { return row + u * arguments.high; };
    Raw<Real, count> raw[kOperands][kLoads];
    Raw<Real, count> repeated[1];
    if constexpr (kRepeats)
      read_elements<kSecondItem>(
          arguments.operands[1].dtype, arguments.operands[1].repeats, [&](int) { return bases[1]; },
          repeated);
#pragma unroll
    for (int k = 0; k < kOperands; ++k)
      if (!kRepeats || k != 1)
        read_elements<kItem>(
            arguments.operands[k].dtype, arguments.operands[k].repeats,
            // Beyond the end, the last row.
            [&](int u) {
              return bases[k] +
                     static_cast<uint64_t>(min(row_at(u), last)) * arguments.operands[k].step;
            },
            raw[k]);
    const Factor<Real> factor = factor_of<Pass, Real>(arguments.results, incoming);
    Real second[1][count];
    if constexpr (kRepeats)
      convert_elements<kSecondItem>(arguments.operands[1].dtype, arguments.operands[1].repeats,
                                    repeated, second);
    TileSum<Real> sum;
    // Where there is much, packs a few at a time: what was read takes fewer registers.
    constexpr int kAtOnce = (kItem == 2 && kLoads > 2) || kLoads > 4 ? 2 : kLoads;
#pragma unroll
    for (int from = 0; from < kLoads; from += kAtOnce) {
      Real x[kOperands][kAtOnce][count];
#pragma unroll
      for (int k = 0; k < kOperands; ++k) {
        if (kRepeats && k == 1) {
#pragma unroll
          for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
            for (int i = 0; i < count; ++i) x[k][u][i] = second[0][i];
          continue;
        }
        Raw<Real, count> some[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) some[u] = raw[k][from + u];
        convert_elements<kItem>(arguments.operands[k].dtype, arguments.operands[k].repeats, some,
                                x[k]);
      }
      work_on<Pass>(
          loss, arguments.results, factor, x,
          [&](int u) {
            return out + static_cast<int64_t>((from + u) * arguments.high) * arguments.row_size;
          },
          [&](int u) { return inside && row_at(from + u) <= last; }, sum);
    }
    carried.add(sum);
  }
  if constexpr (Pass::sum) grid_sum<Shape::threads>(carried, arguments.results.memory, finish);
}

}  // namespace losscli::cuda
