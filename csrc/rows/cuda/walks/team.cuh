// Rows of up to 64 KiB, for GPUs with bulk copies (compute capability 9.0 and newer): a row by a
// team of warps, each element read once, and its gradient written once.
//
// The warps stay. Each has a ring of slots with its part of the team's rows to come, which bulk
// copies fill while the warp has a row in its registers. The warps of a team meet once a row, for
// its largest logit and sum; no team waits for another.
#pragma once

#include "rows/cuda/bulk_copy.cuh"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/policies.h"
#include "rows/cuda/results.cuh"
#include "rows/cuda/span.cuh"

namespace losscli::cuda {

// A row that is to be finished.
struct PendingRow {
  int row = -1;
  int64_t number = 0;
  float top = 0, sum = 0, logit = 0, below = 0;
};

// `kVectors`: of a lane. `kWhole`: rows of whole vectors; otherwise the first warp of a team takes
// the elements before and after them as well, one a lane, which it asks for a turn before.
template <typename Stored, int kWarps, int kVectors, bool kGradient, bool kWhole, RowMode kMode>
__global__ void __launch_bounds__(team_warps(kVectors) * 32, 1)
    team_kernel(const __grid_constant__ RowArguments arguments,
                const __grid_constant__ RowMemory memory, const TeamShape shape,
                const __grid_constant__ typename ModeOf<kMode>::Scale scale) {
#if __CUDA_ARCH__ >= 900
  using V = Vector<Stored>;
  using State = typename ModeOf<kMode>::State;
  constexpr bool kSpread = kMode != RowMode::plain, kRepeats = kMode == RowMode::capped;
  constexpr int kChunk = kVectors < 8 ? kVectors : 8, kChunks = kVectors / kChunk;
  constexpr int kMostTeams = team_warps(kVectors) / kWarps;
  extern __shared__ __align__(128) unsigned char shared[];
  // What the warps of a team tell each other of a row; of the next while some still read.
  __shared__ float4 told[2][kMostTeams][kWarps];
  RowIncoming incoming(arguments, memory, true);
  if (kGradient && incoming.is_done) return;
  const bool writes = kGradient && incoming.writes;

  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int teams = warps / kWarps, team = warp / kWarps, member = warp % kWarps;
  const int rows = static_cast<int>(arguments.rows());
  const int step = gridDim.x * teams;
  const float share = kSpread ? share_of(arguments) : 0.0f;
  const int first = member * shape.slot_bytes;  // where this warp's part begins
  unsigned char* const slots = shared + warp * shape.slots * shape.slot_bytes;
  const uint32_t filled =
      bulk::address_of(shared + warps * shape.slots * shape.slot_bytes) + warp * shape.slots * 8;
  if (lane == 0) {
    for (int k = 0; k < shape.slots; ++k) bulk::initialise(filled + 8 * k, 1);
    bulk::fence_barriers();
  }
  __syncthreads();

  const auto logits_of = [&](int row) {
    return static_cast<const Stored*>(arguments.operands[0]) + row * arguments.strides[0].outer;
  };
  const auto span_of = [&](int row) {
    return kWhole ? RowSpan<Stored>() : RowSpan<Stored>(logits_of(row), arguments.length);
  };
  // The bytes of this warp's part.
  const int row_bytes = static_cast<int>(arguments.length * sizeof(Stored));
  const auto part_of = [&](const RowSpan<Stored>& span) {
    return min(shape.slot_bytes, (kWhole ? row_bytes : span.vectors * 16) - first);
  };
  // The classes of a member's part, over all.
  [[maybe_unused]] const auto fraction_of = [&](int member, const RowSpan<Stored>& span) {
    const int all = kWhole ? row_bytes : span.vectors * 16;
    const int bytes = max(min(shape.slot_bytes, all - member * shape.slot_bytes), 0);
    const int count = bytes / static_cast<int>(sizeof(Stored));
    return share * (member == 0 ? count + span.heads + span.tails : count);
  };
  // By one lane: fills a slot with this warp's part of a row.
  const auto load = [&](int row, int slot) {
    if (row >= rows) return;
    const RowSpan<Stored> span = span_of(row);
    const int bytes = part_of(span);
    bulk::expect(filled + 8 * slot, max(bytes, 0));
    if (bytes > 0)
      bulk::copy(bulk::address_of(slots + slot * shape.slot_bytes),
                 reinterpret_cast<const unsigned char*>(logits_of(row) + span.heads) + first, bytes,
                 filled + 8 * slot);
  };
  // A lane's element besides the vectors.
  const auto read_extra = [&](int row) {
    if (kWhole || member != 0 || row >= rows) return -INFINITY;
    const int extra = span_of(row).extra(lane);
    return extra >= 0 ? static_cast<float>(widen(logits_of(row)[extra])) : -INFINITY;
  };
  const auto read_number = [&](int row) {
    return row < rows ? read_label(arguments, row) : int64_t{0};
  };
  // Rows wait until each lane of the team's first warp has one: the logarithm of all at once.
  PendingRow pending;
  const auto finish = [&] {
    if (pending.row < 0) return;
    State state;
    state.top = pending.top;
    state.sum = pending.sum;
    if constexpr (kSpread) state.below = pending.below;
    const RowTarget<Stored> target(arguments, pending.number);
    const RowResult<Stored> result(state, pending.logit, scale);
    put_row<Stored>(arguments, memory, pending.row,
                    sums_of(arguments, target, state, result, pending.logit, scale));
    pending.row = -1;
  };

  int row = blockIdx.x * teams + team;
  if (lane == 0)
    for (int k = 0; k < shape.slots; ++k) load(row + k * step, k);
  incoming.settle(arguments, memory);
  int64_t number = read_number(row), next_number = read_number(row + step);
  float extra_logit = read_extra(row);
  uint32_t phase = 0;
  int slot = 0;
  for (int turn = 0; row < rows; row += step, ++turn) {
    const int64_t then_number = read_number(row + 2 * step);
    const float next_extra_logit = read_extra(row + step);
    const RowSpan<Stored> span = span_of(row);
    const int bytes = part_of(span);
    const RowTarget<Stored> target(arguments, number);
    const int own =
        target.known
            ? (static_cast<int>(number) - span.heads) * static_cast<int>(sizeof(Stored)) - first
            : -1;
    unsigned char* const data = slots + slot * shape.slot_bytes;
    bulk::wait(filled + 8 * slot, phase);
    // The target's own logit is added apart: nothing is left in its place, or its vector is held.
    float logit = 0;
    [[maybe_unused]] HeldVector<Stored> held;
    if (kSpread && own >= 0 && own < bytes) {
      logit = widen(*reinterpret_cast<const Stored*>(data + own));
      held.hold(data, own, lane);
    }
    if (!kSpread && own >= 0 && own < bytes) {
      logit = widen(*reinterpret_cast<const Stored*>(data + own));
      __syncwarp();
      if (lane == 0) {
        narrow(-INFINITY, *reinterpret_cast<Stored*>(data + own));
        bulk::fence();
      }
      __syncwarp();
    }
    // The lane that has it besides the vectors, if there is one.
    int owner = -1;
    if (!kWhole && target.known && member == 0) {
      owner = RowPlace(span, number).thread;
      if (owner >= 0) {
        logit = __shfl_sync(~0u, extra_logit, owner);
        if (!kSpread && lane == owner) extra_logit = -INFINITY;
      }
    }
    V vectors[kChunks][kChunk];
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      read_vectors<kRepeats>(data, bytes / 16, c * kChunk * 32 + lane, 32, vectors[c]);
    __syncwarp();
    if (lane == 0) load(row + shape.slots * step, slot);
    State state;
    if (!kWhole && member == 0 && span.extra(lane) >= 0)
      state.template begin<Stored>(extra_logit, lane == owner, share, scale);
    if constexpr (kSpread) {
      add_spread<kChunks>(vectors, first_bits(max(bytes, 0) / 16, lane, 32), held, share, scale,
                          state);
    } else {
      add_vectors<kChunks>(vectors, scale, state);
    }
    state = combine<32>(state, scale);
    if constexpr (kWarps > 1) {
      float below = 0;
      if constexpr (kSpread) below = state.below;
      if (lane == 0) told[turn % 2][team][member] = make_float4(state.top, state.sum, logit, below);
      asm volatile("barrier.sync %0, %1;" ::"r"(team + 1), "n"(kWarps * 32) : "memory");
      state = State();
      logit = 0;
#pragma unroll
      for (int m = 0; m < kWarps; ++m) {
        const float4 other = told[turn % 2][team][m];
        State of_member;
        of_member.top = other.x;
        of_member.sum = other.y;
        if constexpr (kSpread) {
          of_member.below = other.w;
          of_member.fraction = fraction_of(m, span);
        }
        merge(state, of_member, scale);
        logit += other.z;
      }
    }
    if (member == 0) {
      if (lane == turn % 32) {
        pending = {row, number, state.top, state.sum, logit};
        if constexpr (kSpread) pending.below = state.below;
      }
      if (turn % 32 == 31) finish();
    }
    if (writes) {
      const RowResult<Stored> result(state, logit, scale);
      const RowFactors factors = factors_of(
          arguments, target, result, incoming.template of<float>(arguments, row), logit, scale);
      Stored* const gradient =
          static_cast<Stored*>(arguments.gradients[0]) + row * arguments.gradient_strides[0].outer;
      unsigned char* const to = reinterpret_cast<unsigned char*>(gradient + span.heads) + first;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        // All of a chunk before the first is written: their powers overlap.
        if constexpr (kMode == RowMode::capped) forget(vectors[c]);
        differentiate(vectors[c], scale, result.reference, factors, target.ignored);
        write_vectors(to, bytes / 16, c * kChunk * 32 + lane, 32, vectors[c]);
      }
      const int extra = kWhole || member != 0 ? -1 : span.extra(lane);
      if (extra >= 0) {
        const float out = lane == owner
                              ? factors.own
                              : any_gradient<Stored>(extra_logit, scale, result.reference, factors);
        narrow(target.ignored ? 0.0f : out, gradient[extra]);
      }
      __syncwarp();
      if (own >= 0 && own < bytes && lane == 0)
        narrow(factors.own, *reinterpret_cast<Stored*>(to + own));
    }
    number = next_number;
    next_number = then_number;
    extra_logit = next_extra_logit;
    if (++slot == shape.slots) {
      slot = 0;
      phase ^= 1;
    }
  }
  if (member == 0) finish();
#endif
}

}  // namespace losscli::cuda
