// Rows of any length and layout, with all that a cross entropy may be asked for: two passes, of
// which the second finds most of the row in the cache.
#pragma once

#include "rowwise/cuda/incoming.cuh"
#include "rowwise/cuda/results.cuh"

namespace losscli::cuda {

constexpr int kAnyThreads = 256;

template <typename Real>
struct AnyState {
  // Finite where all logits are -inf, whose exponentials are then 0 and not NaN.
  Real top = -(sizeof(Real) == 8 ? static_cast<Real>(DBL_MAX) : static_cast<Real>(FLT_MAX));
  Real sum = 0;       // of exp(logit - top), without the target's
  double picked = 0;  // the sum of what each class counts

  __device__ __forceinline__ void add(Real logit) {
    if (logit <= top) {
      sum += exp(logit - top);
    } else {
      sum = sum * exp(top - logit) + 1;  // NaN of NaN
      top = logit;
    }
  }

  __device__ __forceinline__ void add(const AnyState& other) {
    const Real larger = other.top > top ? other.top : top;
    sum = sum * exp(top - larger) + other.sum * exp(other.top - larger);
    top = larger;
    picked += other.picked;
  }
};

// A logit after temperature and softcap, and the derivative of that.
template <typename Real>
struct Logit {
  Real value, slope;

  __device__ __forceinline__ Logit(const RowArguments& arguments, Real raw) {
    const Real temperature = static_cast<Real>(arguments.temperature);
    value = raw / temperature;
    slope = 1 / temperature;
    if (arguments.softcap != 0) {
      const Real cap = static_cast<Real>(arguments.softcap), bent = tanh(value / cap);
      value = cap * bent;
      slope *= 1 - bent * bent;
    }
  }
};

// `columns` rows to a block, neighbours in memory where their classes are not.
template <typename Stored, typename Real, int columns>
__global__ void __launch_bounds__(kAnyThreads)
    any_kernel(const __grid_constant__ RowArguments arguments,
               const __grid_constant__ RowMemory memory) {
  constexpr int kLanes = kAnyThreads / columns;
  __shared__ AnyState<Real> states[kLanes][columns];
  __shared__ double sums[kLanes][columns];
  const RowIncoming incoming(arguments, memory);
  const bool gradient = arguments.gradient && incoming.writes;
  if (arguments.gradient && incoming.is_done) return;
  const int column = threadIdx.x % columns, lane = threadIdx.x / columns;
  const int64_t rows = arguments.rows(), classes = arguments.classes;
  const double smoothing = arguments.label_smoothing;
  const bool spread = arguments.probabilities || smoothing != 0;
  const Stored* const weights = static_cast<const Stored*>(arguments.weight);

  for (int64_t first = static_cast<int64_t>(blockIdx.x) * columns; first < rows;
       first += static_cast<int64_t>(gridDim.x) * columns) {
    const int64_t row = first + column;
    const bool is = row < rows;
    const int64_t place = is ? row : 0;
    const Stored* const logits = static_cast<const Stored*>(arguments.logits) +
                                 arguments.logits_strides.start(place, arguments.inner);
    const int64_t step = arguments.logits_strides.classes;
    const Stored* const probabilities =
        static_cast<const Stored*>(arguments.targets) +
        (arguments.probabilities ? arguments.target_strides.start(place, arguments.inner) : 0);
    const RowTarget<Stored> target(arguments, arguments.probabilities ? -1
                                              : is ? RowTarget<Stored>::read_number(arguments, row)
                                                   : arguments.ignore_index);
    const bool has_target = !arguments.probabilities && target.known;
    const bool ignored = !arguments.probabilities && target.ignored;
    const bool unknown = !arguments.probabilities && !target.known && !target.ignored;
    const double own_weight =
        has_target && weights ? static_cast<double>(widen(weights[target.number])) : 1;
    const double share = 1.0 / static_cast<double>(classes);
    // What a class counts besides the target's own share.
    const auto counts = [&](int64_t k) {
      double count = smoothing * share;
      if (arguments.probabilities)
        count += (1 - smoothing) *
                 static_cast<double>(widen(probabilities[k * arguments.target_strides.classes]));
      return weights ? count * static_cast<double>(widen(weights[k])) : count;
    };

    AnyState<Real> state;
    if (is && !ignored)
      for (int64_t k = lane; k < classes; k += kLanes) {
        if (!(has_target && k == target.number))
          state.add(Logit<Real>(arguments, widen(logits[k * step])).value);
        if (spread) state.picked += counts(k);
      }
    states[lane][column] = state;
    __syncthreads();
    state = states[0][column];
    for (int other = 1; other < kLanes; ++other) state.add(states[other][column]);
    __syncthreads();

    // The target's logit beside the others.
    Real own = 0, others = state.sum, top = state.top, logit = 0;
    bool correct = false;
    if (has_target) {
      logit = Logit<Real>(arguments, widen(logits[target.number * step])).value;
      correct = logit >= state.top;
      top = logit > state.top ? logit : state.top;
      others = state.sum * exp(state.top - top);
      own = exp(logit - top);
      if (isnan(logit)) own = logit;
    }
    const double sum = static_cast<double>(others) + own;
    const double log_sum_exp = log(sum) + top;
    double loss = 0;
    if (has_target) {
      loss = own > others ? log1p(static_cast<double>(others) / own)
                          : log(sum) + (static_cast<double>(top) - logit);
      loss *= (1 - smoothing) * own_weight;
    }
    if (spread) {
      double part = 0;
      if (is && !ignored && arguments.value)
        for (int64_t k = lane; k < classes; k += kLanes) {
          const double count = counts(k);
          if (count != 0)
            part += count * (log_sum_exp - Logit<Real>(arguments, widen(logits[k * step])).value);
        }
      sums[lane][column] = part;
      __syncthreads();
      for (int other = 0; other < kLanes; ++other) loss += sums[other][column];
      __syncthreads();
    }
    loss += arguments.z_loss == 0 ? 0 : arguments.z_loss * log_sum_exp * log_sum_exp;
    if (ignored) loss = 0;
    if (unknown) loss = NAN;
    if (is && lane == 0)
      write_row<Stored, RealOf<Stored>>(arguments, memory, row, loss, log_sum_exp, correct);

    if (gradient && is) {
      const double scale = incoming.template of<double>(arguments, row);
      Stored* const to = static_cast<Stored*>(arguments.gradient) +
                         arguments.gradient_strides.start(row, arguments.inner);
      const double picked = has_target ? (1 - smoothing) * own_weight : 0;
      const double beyond =
          state.picked + (arguments.z_loss == 0 ? 0 : 2 * arguments.z_loss * log_sum_exp);
      for (int64_t k = lane; k < classes; k += kLanes) {
        double out = 0;
        if (unknown) {
          out = NAN;
        } else if (!ignored) {
          const Logit<Real> each(arguments, widen(logits[k * step]));
          const double softmax = exp(each.value - top) / sum;
          out = (picked + beyond) * softmax;
          if (has_target && k == target.number) out = beyond * softmax - picked * (others / sum);
          if (spread) out -= counts(k);
          out *= scale * each.slope;
        }
        narrow(static_cast<Real>(out), to[k * arguments.gradient_strides.classes]);
      }
    }
    __syncthreads();
  }
}

}  // namespace losscli::cuda
