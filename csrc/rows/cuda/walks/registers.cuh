// Rows that a group of threads holds in its registers: each element is read once, and its gradient
// written once.
#pragma once

#include "rows/cuda/few_rows.cuh"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/results.cuh"
#include "rows/cuda/span.cuh"

namespace losscli::cuda {

constexpr int kLeastBlock = 128;

// The state of all threads of a group, in each of them; `memory` has a place for each warp.
template <int threads, typename State, typename Scale>
__device__ __forceinline__ State combine_group(State state, const Scale& scale, State* memory) {
  state = combine<(threads < 32 ? threads : 32)>(state, scale);
  if constexpr (threads > 32) {
    constexpr int kWarps = threads / 32;
    if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = state;
    __syncthreads();
    state = memory[threadIdx.x % kWarps];
    state = combine<kWarps>(state, scale);
  }
  return state;
}

// `threads` threads a row, each with `count` vectors.
template <typename Stored, int threads, int count, bool kGradient, RowMode kMode>
__global__ void __launch_bounds__(threads < kLeastBlock ? kLeastBlock : threads,
                                  kRegistersThreads /
                                      (threads < kLeastBlock ? kLeastBlock : threads))
    registers_kernel(const __grid_constant__ RowArguments arguments,
                     const __grid_constant__ RowMemory memory,
                     const __grid_constant__ typename ModeOf<kMode>::Scale scale) {
  using V = Vector<Stored>;
  using State = typename ModeOf<kMode>::State;
  constexpr bool kSpread = kMode != RowMode::plain;
  constexpr int kRows = threads < kLeastBlock ? kLeastBlock / threads : 1;
  __shared__ State states[2][threads < 32 ? 1 : threads / 32];
  __shared__ float logits_of[2];
  RowIncoming incoming(arguments, memory);
  if (kGradient && incoming.is_done) return;
  if (kGradient && memory.counts) incoming.divide(count_few<Stored>(arguments));
  const float share = kSpread ? share_of(arguments) : 0.0f;
  const int thread = threadIdx.x % threads;
  const int64_t rows = arguments.rows();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  int parity = 0;
  // All threads of a warp go round as often: they exchange what they have.
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kRows; first < rows; first += step) {
    const int64_t row = first + threadIdx.x / threads;
    const bool is = row < rows;
    const Stored* const logits = static_cast<const Stored*>(arguments.operands[0]) +
                                 (is ? row : 0) * arguments.strides[0].outer;
    const int64_t number = is ? read_label(arguments, row) : ignore_index(arguments);
    const RowSpan<Stored> span(logits, is ? arguments.length : 0);
    V vectors[count];
    read_vectors<kMode == RowMode::capped>(logits + span.heads, span.vectors, thread, threads,
                                           vectors);
    const int extra = span.extra(thread);
    float extra_logit = extra >= 0 ? widen(logits[extra]) : -INFINITY;
    const RowTarget<Stored> target(arguments, number);
    // The thread that has the target's logit takes it out: it is added apart.
    const RowPlace place(span, target.known ? target.number : -1);
    const int owner = place.vector >= 0 ? place.vector % threads : place.thread;
    float logit = 0;
    [[maybe_unused]] HeldVector<Stored> held;
    if (target.known && thread == owner) {
      if (place.vector >= 0) {
#pragma unroll
        for (int v = 0; v < count; ++v)
          if (place.vector == thread + v * threads) {
            if constexpr (kSpread) {
              held.vectors[0] = vectors[v];
              held.number = v;
              held.element = place.element;
              logit = V(vectors[v]).take(place.element);
            } else {
              logit = vectors[v].take(place.element);
            }
          }
      } else {
        logit = extra_logit;
        if (!kSpread) extra_logit = -INFINITY;
      }
      if (threads > 32) logits_of[parity] = logit;
    }
    State state;
    if (extra >= 0)
      state.template begin<Stored>(extra_logit, target.known && extra == target.number, share,
                                   scale);
    if constexpr (kSpread) {
      add_spread(&vectors, first_bits(span.vectors, thread, threads), held, share, scale, state);
    } else {
      add_vectors(&vectors, scale, state);
    }
    state = combine_group<threads>(state, scale, states[parity]);
    if constexpr (threads > 32) {
      logit = target.known ? logits_of[parity] : 0.0f;
    } else {
      logit = __shfl_sync(~0u, logit, target.known ? owner : 0, threads);
    }
    parity ^= 1;
    const RowResult<Stored> result(state, logit, scale);
    if (thread == 0 && is)
      put_row<Stored>(arguments, memory, row,
                      sums_of(arguments, target, state, result, logit, scale));
    if constexpr (kGradient) {
      if (is && incoming.writes) {
        Stored* const to = static_cast<Stored*>(arguments.gradients[0]) +
                           row * arguments.gradient_strides[0].outer;
        const RowFactors factors = factors_of(
            arguments, target, result, incoming.template of<float>(arguments, row), logit, scale);
        // All of them before the first is written: their powers overlap.
        if constexpr (kMode == RowMode::capped) forget(vectors);
        differentiate(vectors, scale, result.reference, factors, target.ignored);
        write_vectors(to + span.heads, span.vectors, thread, threads, vectors);
        if (extra >= 0) {
          const float out = any_gradient<Stored>(extra_logit, scale, result.reference, factors);
          narrow(target.ignored ? 0.0f : out, to[extra]);
        }
        // By the thread that has written there before.
        if (target.known && thread == owner) narrow(factors.own, to[target.number]);
      }
    }
  }
  finish_few<Stored>(arguments, memory);
}

}  // namespace losscli::cuda
