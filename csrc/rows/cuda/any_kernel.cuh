// Rows of any length and layout, with all that a cross entropy may be asked for: two passes, of
// which the second finds most of the row in the cache.
#pragma once

#include "rows/cuda/any_scale.cuh"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/results.cuh"

namespace losscli::cuda {

constexpr int kAnyThreads = 256;
constexpr int kAnyAhead = 4;  // elements that a thread reads before it computes

// `columns` rows to a block, neighbours in memory where their classes are not.
template <typename Stored, typename Real, int columns>
__global__ void __launch_bounds__(kAnyThreads)
    any_kernel(const __grid_constant__ RowArguments arguments,
               const __grid_constant__ RowMemory memory) {
  constexpr int kLanes = kAnyThreads / columns;
  // The threads of a warp are lanes of one row, or of 32 rows.
  constexpr int kParts = columns == 1 ? kAnyThreads / 32 : kLanes;
  __shared__ AnyState<Real> states[kParts][columns];
  const RowIncoming incoming(arguments, memory);
  const bool gradient = arguments.gradients[0] && incoming.writes;
  if (arguments.gradients[0] && incoming.is_done) return;
  const int column = threadIdx.x % columns, lane = threadIdx.x / columns;
  const int64_t rows = arguments.rows(), classes = arguments.length;
  const int64_t step = arguments.strides[0].element;
  const AnyLogits<Stored, Real> logit_of(arguments);
  const AnyPowers<Stored, Real> powers(logit_of.powers_temperature(arguments));
  const bool spread = arguments.operands[1] || arguments.parameters[kLabelSmoothing] != 0;
  const Stored* const weights = static_cast<const Stored*>(arguments.weight);
  const Real kept = static_cast<Real>(1 - arguments.parameters[kLabelSmoothing]);
  const Real share = static_cast<Real>(arguments.parameters[kLabelSmoothing] /
                                       static_cast<double>(arguments.length));

  for (int64_t first = static_cast<int64_t>(blockIdx.x) * columns; first < rows;
       first += static_cast<int64_t>(gridDim.x) * columns) {
    const int64_t row = first + column;
    const bool is = row < rows;
    const int64_t place = is ? row : 0;
    const Stored* const logits = static_cast<const Stored*>(arguments.operands[0]) +
                                 arguments.strides[0].start(place, arguments.inner);
    const Stored* const probabilities =
        static_cast<const Stored*>(arguments.operands[1]) +
        (arguments.operands[1] ? arguments.strides[1].start(place, arguments.inner) : 0);
    const RowTarget<Stored> target(arguments, arguments.operands[1] ? -1
                                              : is ? RowTarget<Stored>::read_number(arguments, row)
                                                   : ignore_index(arguments));
    const bool has_target = !arguments.operands[1] && target.known;
    const bool ignored = !arguments.operands[1] && target.ignored;
    const bool unknown = !arguments.operands[1] && !target.known && !target.ignored;
    const int64_t own_class = has_target ? target.number : -1;
    // What a class counts besides the target's own share.
    const auto counts = [&](int64_t k) {
      Real count = share;
      if (arguments.operands[1])
        count += kept * static_cast<Real>(widen(probabilities[k * arguments.strides[1].element]));
      return weights ? count * static_cast<Real>(widen(weights[k])) : count;
    };
    // Calls `each` with this thread's classes and their logits.
    const auto walk = [&](const auto& each) {
      const int64_t apart = kLanes * step;
      const Stored* from = logits + lane * step;
      for (int64_t start = lane; start < classes; start += kLanes * kAnyAhead) {
        Stored stored[kAnyAhead];
#pragma unroll
        for (int u = 0; u < kAnyAhead; ++u)
          if (start + u * kLanes < classes) stored[u] = from[u * apart];
        from += kAnyAhead * apart;
#pragma unroll
        for (int u = 0; u < kAnyAhead; ++u)
          if (start + u * kLanes < classes) each(start + u * kLanes, stored[u]);
      }
    };

    const Real own_weight =
        has_target && weights ? static_cast<Real>(widen(weights[own_class])) : 1;
    // Before a gradient may be written over it.
    const Stored own_stored = has_target ? logits[own_class * step] : Stored();
    AnyState<Real> state;
    state.reference = powers.reference(state.top);
    if (is && !ignored)
      walk([&](int64_t k, Stored stored) {
        const Real logit = logit_of(stored);
        state.raise(logit, powers);
        if (k != own_class)
          state.template add_power<sizeof(Stored) == 4>(powers.power(logit, state.reference));
        if (spread) state.template add_count<sizeof(Stored) == 4>(counts(k), state.top - logit);
      });
    state.settle();
    if constexpr (columns == 1) {
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        state.add(state.from_lane(distance), powers);
      if (lane % 32 == 0) states[lane / 32][0] = state;
    } else {
      states[lane][column] = state;
    }
    __syncthreads();
    state = states[0][column];
    for (int other = 1; other < kParts; ++other) state.add(states[other][column], powers);
    __syncthreads();

    const Real logit = logit_of(own_stored), reference = state.reference, others = state.sum;
    const Real own = has_target ? powers.power(logit, reference) : 0, sum = others + own;
    // By one thread, for logarithms of double take as long as many elements.
    if (is && lane == 0) {
      // From the largest logit to the logarithm of the sum. The error of that one's power is in
      // both.
      const double above = log((static_cast<double>(others) + static_cast<double>(own)) /
                               powers.power(state.top, reference));
      const double log_sum_exp = above + powers.over(state.top);
      double loss = 0;
      if (has_target) {
        loss = own > others ? log1p(static_cast<double>(others) / own)
                            : above + (powers.over(state.top) - powers.over(logit));
        loss *= (1 - arguments.parameters[kLabelSmoothing]) * own_weight;
      }
      if (spread) loss += state.counted * above + state.below * powers.over(1);
      if (arguments.parameters[kZLoss] != 0)
        loss += arguments.parameters[kZLoss] * log_sum_exp * log_sum_exp;
      if (ignored) loss = 0;
      if (unknown) loss = NAN;
      write_row<Stored, RealOf<Stored>>(arguments, memory, row, loss);
    }

    if (gradient && is) {
      const Real scale = incoming.template of<Real>(arguments, row);
      Stored* const to = static_cast<Stored*>(arguments.gradients[0]) +
                         arguments.gradient_strides[0].start(row, arguments.inner);
      const Real picked = has_target ? kept * own_weight : 0;
      Real beyond = state.counted;
      if (arguments.parameters[kZLoss] != 0)
        beyond += 2 * static_cast<Real>(arguments.parameters[kZLoss]) *
                  (log(sum / powers.power(state.top, reference)) +
                   static_cast<Real>(powers.over(state.top)));
      const Real all = picked + beyond, inverse = 1 / sum;
      const Real of_own = beyond * (own / sum) - picked * (others / sum);
      walk([&](int64_t k, Stored stored) {
        Real out = 0;
        if (unknown) {
          out = NAN;
        } else if (!ignored) {
          const Real power = powers.power(logit_of(stored), reference);
          // The gradient of one class is exactly 0.
          out = k == own_class ? of_own : all * (classes == 1 ? power / sum : power * inverse);
          if (spread) out -= counts(k);
          out *= scale * logit_of.slope(stored);
        }
        narrow(out, to[k * arguments.gradient_strides[0].element]);
      });
    }
    __syncthreads();
  }
}

}  // namespace losscli::cuda
