// Where a loss's formula meets the data.
#include "elementwise/cpu/loops.h"

#include <algorithm>
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

// A group of lanes on its way to memory.
template <typename Real>
struct Outgoing {
  alignas(kLine) Real lanes[kLanes];

  // Where the lanes are computed: in memory, unless they are streamed there or go nowhere.
  Real* place(const TileOutput<Real>& output, int64_t first) {
    return output.data && !output.streamed ? output.data + first : lanes;
  }

  void give(const TileOutput<Real>& output, int64_t first) {
    if (output.streamed) stream<kLanes * sizeof(Real)>(lanes, output.data + first);
  }
};

template <typename Real>
inline __attribute__((always_inline)) void ask_to_write(const TileOutput<Real>& output,
                                                        int64_t first) {
  if (output.data && !output.streamed) ask_ahead<true>(output.data + first, kLanes);
}

// Over whole groups of lanes, or over one that is padded to a whole one.
template <bool kSum, bool kValue, unsigned kGradients, bool kOutput, typename Real, size_t... k>
__attribute__((always_inline)) inline Compensated loss_loop(const Loss<Real> loss,
                                                            const LossTile<Real>& tile,
                                                            std::index_sequence<k...>) {
  // `loss` is a copy: a parameter behind a reference, read in one branch only, stops vectorisers.
  const Real scale = tile.scale;
  Lanes<Real> lanes;
  for (int64_t first = 0; first < tile.count; first += kLanes) {
    const Real* const x[] = {tile.operands[k] + first...};
    const Real* const g = kOutput ? tile.grad_output + first : nullptr;
    (ask_ahead<false>(x[k], kLanes), ...);
    if constexpr (kOutput) ask_ahead<false>(g, kLanes);
    if constexpr (kValue) ask_to_write(tile.value, first);
    if constexpr (kGradients != 0) (ask_to_write(tile.gradients[k], first), ...);

    Outgoing<Real> values, gradients[kOperands];
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
    if constexpr (kGradients != 0) (gradients[k].give(tile.gradients[k], first), ...);
  }
  if constexpr (!kSum) return {};
  // What a padded group holds of no element.
  if (tile.count < kLanes) lanes.clear(tile.count);
  return lanes.total();
}

template <bool kSum, bool kValue, unsigned kGradients, bool kOutput, typename Real>
__attribute__((noinline)) Compensated whole_groups(const Loss<Real>& loss,
                                                   const LossTile<Real>& tile) {
  return loss_loop<kSum, kValue, kGradients, kOutput, Real>(loss, tile,
                                                            std::make_index_sequence<kOperands>());
}

// Fewer elements than lanes, through copies of a whole group.
template <typename Real>
Compensated padded_group(Loop<Real> loop, const Loss<Real>& loss, const LossTile<Real>& tile,
                         int64_t first) {
  alignas(kLine) Real in[kOperands + 1][kLanes] = {}, out[kOperands + 1][kLanes];
  LossTile<Real> padded = tile;
  padded.count = tile.count - first;
  const auto copy_in = [&](const Real*& from, int i) {
    if (!from) return;
    std::copy_n(from + first, padded.count, in[i]);
    from = in[i];
  };
  const auto copy_out = [&](const TileOutput<Real>& to, int i) {
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

template <typename Real, bool kSum, bool kOutput, size_t... gradients>
Loop<Real> loop_of(unsigned wanted, std::index_sequence<gradients...>) {
  const auto instance = [](auto mask) -> Loop<Real> {
    constexpr unsigned kMask = mask();
    if constexpr (!is_compiled(kMask) || (kMask == 0 && !kSum))
      return nullptr;
    else
      return whole_groups<kSum, false, kMask, kOutput, Real>;
  };
  static const Loop<Real> loops[] = {instance(std::integral_constant<unsigned, gradients>())...};
  return loops[is_compiled(wanted) ? wanted : kAllGradients];
}

}  // namespace

template <typename Real>
Compensated run_loop(Loop<Real> loop, const Loss<Real>& loss, const LossTile<Real>& tile) {
  const int64_t whole = tile.count / kLanes * kLanes;
  Compensated sum;
  if (whole == tile.count) return loop(loss, tile);
  if (whole > 0) {
    LossTile<Real> groups = tile;
    groups.count = whole;
    sum = loop(loss, groups);
  }
  sum.add(padded_group(loop, loss, tile, whole));
  return sum;
}

template <typename Real>
Loop<Real> sum_loop(unsigned gradients) {
  return loop_of<Real, true, false>(gradients, std::make_index_sequence<kAllGradients + 1>());
}

template <typename Real>
Loop<Real> gradient_loop(unsigned gradients, bool each) {
  constexpr auto all = std::make_index_sequence<kAllGradients + 1>();
  return each ? loop_of<Real, false, true>(gradients, all)
              : loop_of<Real, false, false>(gradients, all);
}

template <typename Real>
Loop<Real> value_loop() {
  return whole_groups<false, true, 0, false, Real>;
}

template Loop<float> sum_loop<float>(unsigned);
template Loop<float> gradient_loop<float>(unsigned, bool);
template Loop<float> value_loop<float>();
template Compensated run_loop<float>(Loop<float>, const Loss<float>&, const LossTile<float>&);
template Loop<double> sum_loop<double>(unsigned);
template Loop<double> gradient_loop<double>(unsigned, bool);
template Loop<double> value_loop<double>();
template Compensated run_loop<double>(Loop<double>, const Loss<double>&, const LossTile<double>&);

}  // namespace losscli::cpu
