// Where a loss's formula meets the data.
#include "elementwise/cpu/loops.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "elementwise/cpu/stream.h"
#include "reduce/cpu/lanes.h"

namespace losscli::cpu {
namespace {

// Which gradients a loop computes: a bit an operand. All combinations are compiled for two
// operands; for more, the first gradient alone and all of them, of which some may go nowhere.
constexpr unsigned kAllGradients = (1u << kOperands) - 1;

constexpr bool is_compiled(unsigned gradients) {
  return kOperands <= 2 || gradients <= 1 || gradients == kAllGradients;
}

// A group of lanes as it is computed with: in memory just so, or converted.
template <typename Stored>
struct IncomingLanes {
  using Real = RealOf<Stored>;
  alignas(kLine) Real lanes[kLanes];

  const Real* take(const Stored* from) {
    ask_ahead<false>(from, kLanes);
    if constexpr (std::is_same_v<Stored, Real>) return from;
    widen_run(from, lanes, kLanes);
    return lanes;
  }
};

// A group of lanes on its way to memory.
template <typename Stored>
struct OutgoingLanes {
  using Real = RealOf<Stored>;
  static constexpr bool kConverted = !std::is_same_v<Stored, Real>;
  alignas(kLine) Real lanes[kLanes];

  // Where the lanes are computed: in memory, unless they are converted, streamed, or go nowhere.
  Real* place(const TileOutput<Stored>& output, int64_t first) {
    if (!output.data) return lanes;
    if (!output.streamed) ask_ahead<true>(output.data + first, kLanes);
    if constexpr (!kConverted)
      if (!output.streamed) return output.data + first;
    return lanes;
  }

  void give(const TileOutput<Stored>& output, int64_t first) {
    constexpr int64_t kBytes = kLanes * sizeof(Stored);
    Stored* const to = output.data + first;
    if constexpr (kConverted) {
      if (!output.data) return;
      if (!output.streamed) return narrow_run(lanes, to, kLanes);
      alignas(kLine) Stored narrowed[kLanes];
      narrow_run(lanes, narrowed, kLanes);
      stream<kBytes>(narrowed, to);
    } else if (output.streamed) {
      stream<kBytes>(lanes, to);
    }
  }
};

// Over whole groups of lanes, or over one that is padded to a whole one.
template <bool kSum, bool kValue, unsigned kGradients, bool kOutput, typename Stored, size_t... k>
__attribute__((always_inline)) inline Compensated loss_loop(const Loss<RealOf<Stored>> loss,
                                                            const LossTile<Stored>& tile,
                                                            std::index_sequence<k...>) {
  using Real = RealOf<Stored>;
  // `loss` is a copy: a parameter behind a reference, read in one branch only, stops vectorisers.
  const Real scale = tile.scale;
  LaneSums<Real, kLanes, Real> lanes;  // of float in float: a tile adds 16 values to each
  for (int64_t first = 0; first < tile.count; first += kLanes) {
    IncomingLanes<Stored> inputs[kOperands], grad_output;
    const Real* const x[] = {inputs[k].take(tile.operands[k] + first)...};
    const Real* const g = kOutput ? grad_output.take(tile.grad_output + first) : nullptr;
    OutgoingLanes<Stored> values, gradients[kOperands];
    Real* const v = kValue ? values.place(tile.value, first) : nullptr;
    Real* const d[] = {
        ((kGradients >> k) & 1 ? gradients[k].place(tile.gradients[k], first) : nullptr)...};
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) {
      const Real element[] = {x[k][lane]...};
      if constexpr (kSum) lanes.add(lane, loss.value(element));
      if constexpr (kValue) v[lane] = loss.value(element);
      if constexpr (kGradients != 0) {
        Real gradient[kOperands];
        loss.gradient(element, kOutput ? scale * g[lane] : scale, gradient);
        const auto put = [&](auto operand) {
          if constexpr ((kGradients >> operand()) & 1) d[operand()][lane] = gradient[operand()];
        };
        (put(std::integral_constant<unsigned, k>()), ...);
      }
    }
    if constexpr (kValue) values.give(tile.value, first);
    const auto give = [&](auto operand) {
      if constexpr ((kGradients >> operand()) & 1)
        gradients[operand()].give(tile.gradients[operand()], first);
    };
    (give(std::integral_constant<unsigned, k>()), ...);
  }
  if constexpr (!kSum) return {};
  // What a padded group holds of no element.
  if (tile.count < kLanes) lanes.clear(tile.count);
  return lanes.total();
}

// Functions of their own, so that the compiler optimises each loop by itself.
template <bool kUsual, bool kSum, bool kValue, unsigned kGradients, bool kOutput, typename Stored>
__attribute__((noinline)) Compensated one_form(const Loss<RealOf<Stored>>& loss,
                                               const LossTile<Stored>& tile) {
  constexpr auto operands = std::make_index_sequence<kOperands>();
  if constexpr (kUsual)
    return loss_loop<kSum, kValue, kGradients, kOutput, Stored>(loss.usual_form(), tile, operands);
  else
    return loss_loop<kSum, kValue, kGradients, kOutput, Stored>(loss, tile, operands);
}

template <bool kSum, bool kValue, unsigned kGradients, bool kOutput, typename Stored>
Compensated whole_groups(const Loss<RealOf<Stored>>& loss, const LossTile<Stored>& tile) {
  if constexpr (has_usual_form<Loss<RealOf<Stored>>>)
    if (loss.is_usual())
      return one_form<true, kSum, kValue, kGradients, kOutput, Stored>(loss, tile);
  return one_form<false, kSum, kValue, kGradients, kOutput, Stored>(loss, tile);
}

// Fewer elements than lanes, through copies of a whole group.
template <typename Stored>
Compensated padded_group(Loop<Stored> loop, const Loss<RealOf<Stored>>& loss,
                         const LossTile<Stored>& tile, int64_t first) {
  alignas(kLine) Stored in[kOperands + 1][kLanes] = {}, out[kOperands + 1][kLanes];
  LossTile<Stored> padded = tile;
  padded.count = tile.count - first;
  const auto copy_in = [&](const Stored*& from, int i) {
    if (!from) return;
    std::copy_n(from + first, padded.count, in[i]);
    from = in[i];
  };
  const auto copy_out = [&](const TileOutput<Stored>& to, int i) {
    if (to.data) std::copy_n(out[i], padded.count, to.data + first);
  };
  for (int i = 0; i < kOperands; ++i) copy_in(padded.operands[i], i);
  copy_in(padded.grad_output, kOperands);
  for (int i = 0; i < kOperands; ++i)
    padded.gradients[i] = {tile.gradients[i].data ? out[i] : nullptr, false};
  padded.value = {tile.value.data ? out[kOperands] : nullptr, false};
  const Compensated sum = loop(loss, padded);
  for (int i = 0; i < kOperands; ++i) copy_out(tile.gradients[i], i);
  copy_out(tile.value, kOperands);
  return sum;
}

template <typename Stored, bool kSum, bool kOutput, size_t... gradients>
Loop<Stored> loop_of(unsigned wanted, std::index_sequence<gradients...>) {
  const auto instance = [](auto mask) -> Loop<Stored> {
    constexpr unsigned kMask = mask();
    if constexpr (!is_compiled(kMask) || (kMask == 0 && !kSum))
      return nullptr;
    else
      return whole_groups<kSum, false, kMask, kOutput, Stored>;
  };
  static const Loop<Stored> loops[] = {instance(std::integral_constant<unsigned, gradients>())...};
  return loops[is_compiled(wanted) ? wanted : kAllGradients];
}

}  // namespace

template <typename Stored>
Compensated Loops<Stored>::run(Loop<Stored> loop, const Loss<RealOf<Stored>>& loss,
                               const LossTile<Stored>& tile) {
  const int64_t whole = tile.count / kLanes * kLanes;
  Compensated sum;
  if (whole == tile.count) return loop(loss, tile);
  if (whole > 0) {
    LossTile<Stored> groups = tile;
    groups.count = whole;
    sum = loop(loss, groups);
  }
  sum.add(padded_group(loop, loss, tile, whole));
  return sum;
}

template <typename Stored>
Loop<Stored> Loops<Stored>::sum(unsigned gradients) {
  return loop_of<Stored, true, false>(gradients, std::make_index_sequence<kAllGradients + 1>());
}

template <typename Stored>
Loop<Stored> Loops<Stored>::gradient(unsigned gradients, bool each) {
  constexpr auto all = std::make_index_sequence<kAllGradients + 1>();
  return each ? loop_of<Stored, false, true>(gradients, all)
              : loop_of<Stored, false, false>(gradients, all);
}

template <typename Stored>
Loop<Stored> Loops<Stored>::value() {
  return whole_groups<false, true, 0, false, Stored>;
}

template struct Loops<float>;
template struct Loops<double>;
template struct Loops<Half>;
template struct Loops<BFloat16>;

}  // namespace losscli::cpu
