// Long rows, for GPUs with clusters and bulk copies (compute capability 9.0 and newer): each
// element is read once, and its gradient written once, by clusters of blocks that stay and claim
// rows.
//
// A cluster holds a row, and the beginning of the next, in its shared memory. Each warp has a piece
// of every row, whole lines of the cache, and a ring of slots that it alone fills by bulk copies
// and reads: no warp waits for another but once a row, for the row's largest logit and sum. These
// go to all blocks of the cluster as messages; the first warp's carries the row that comes third
// and the target's logit.
#pragma once

#include <cooperative_groups.h>

#include "rows/cuda/bulk_copy.cuh"
#include "rows/cuda/incoming.cuh"
#include "rows/cuda/policies.h"
#include "rows/cuda/results.cuh"

namespace losscli::cuda {

constexpr int kLineBytes = 128;

// Without gradients a row's result is looked at one turn later, when it has long arrived. So a warp
// may send what belongs to a turn while another has yet to read that of three turns before.
template <bool gradient>
constexpr int kRoundsOf = gradient ? 2 : 4;

// In modes other than plain, `logit` has how far the logits of the warp are below, and the target's
// logit is the second warp's `row`.
struct alignas(16) Message {
  float top, sum, logit;
  int row;
};

namespace ring {

// Its own barrier, of whole warps: that of cooperative groups first brings a warp's lanes together.
__device__ __forceinline__ void synchronise_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// To the same place in another block of the cluster, whose barrier counts the bytes.
__device__ __forceinline__ void send(const Message& message, uint32_t place, uint32_t barrier,
                                     uint32_t block) {
  uint32_t there, counts;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(place), "r"(block));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counts) : "r"(barrier), "r"(block));
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(there),
      "r"(__float_as_uint(message.top)), "r"(__float_as_uint(message.sum)),
      "r"(__float_as_uint(message.logit)), "r"(message.row), "r"(counts)
      : "memory");
}

// The same where a cluster is one block, whose barrier counts its threads: the instruction above is
// defined between blocks alone.
__device__ __forceinline__ void put(const Message& message, Message& place, uint32_t barrier,
                                    bool leads) {
  if (leads) place = message;
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace ring

// A row's part that bulk copies can take, by its addresses, and the pieces of it.
template <typename Stored>
struct RingRow {
  uintptr_t start, end;        // of the row
  uintptr_t inner, inner_end;  // of whole granules of 16 bytes
  uintptr_t lines;             // where the first line begins

  __device__ __forceinline__ RingRow(const RowArguments& arguments, int row) {
    start = reinterpret_cast<uintptr_t>(static_cast<const Stored*>(arguments.operands[0]) +
                                        row * arguments.strides[0].outer);
    end = start + arguments.length * sizeof(Stored);
    inner = (start + 15) / 16 * 16;
    inner_end = end / 16 * 16;
    lines = start / kLineBytes * kLineBytes;
  }
};

// `kVectors`: of a lane, of a slot.
template <typename Stored, bool kGradient, RowMode kMode, int kVectors>
__global__ void __launch_bounds__(kMostRingWarps * 32, 1)
    ring_kernel(const __grid_constant__ RowArguments arguments,
                const __grid_constant__ RowMemory memory, const RingShape shape,
                const __grid_constant__ typename ModeOf<kMode>::Scale scale) {
#if __CUDA_ARCH__ >= 900
  using V = Vector<Stored>;
  using State = typename ModeOf<kMode>::State;
  constexpr bool kSpread = kMode != RowMode::plain, kRepeats = kMode == RowMode::capped;
  constexpr int kRounds = kRoundsOf<kGradient>, kAhead = kGradient ? 3 : 4;
  extern __shared__ __align__(128) unsigned char shared[];
  RowIncoming incoming(arguments, memory, true);
  if (kGradient && incoming.is_done) return;
  const bool writes = kGradient && incoming.writes;

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t rank = cooperative_groups::cluster_group::block_rank();
  const uint32_t blocks = cooperative_groups::cluster_group::num_blocks();
  const int warps = shape.warps, all_warps = warps * blocks, self = rank * warps + warp;
  const int clusters = gridDim.x / blocks, cluster = blockIdx.x / blocks;
  const int rows = static_cast<int>(arguments.rows());
  const float share = kSpread ? share_of(arguments) : 0.0f;

  // Slots of all warps, messages of some rows, barriers of the slots, and of the messages.
  unsigned char* const slots = shared + warp * shape.slots * shape.slot_bytes;
  Message* const received =
      reinterpret_cast<Message*>(shared + warps * shape.slots * shape.slot_bytes);
  const uint32_t messages = bulk::address_of(received);
  const uint32_t barriers = messages + kRounds * all_warps * sizeof(Message);
  const uint32_t filled = barriers + warp * shape.slots * 8;
  const uint32_t told = barriers + warps * shape.slots * 8;
  if (threadIdx.x == 0) {
    for (int k = 0; k < warps * shape.slots; ++k) bulk::initialise(barriers + 8 * k, 1);
    for (int k = 0; k < kRounds; ++k) bulk::initialise(told + 8 * k, blocks == 1 ? blockDim.x : 1);
    bulk::fence_barriers();
  }
  __syncthreads();
  ring::synchronise_cluster();

  const int piece_bytes = shape.piece_slots * shape.slot_bytes;
  // The part of a slot's lines that lies in the row.
  const auto part = [&](const RingRow<Stored>& row, int slot, uintptr_t& from, int& bytes) {
    const uintptr_t begin =
        row.lines + static_cast<uintptr_t>(self) * piece_bytes + slot * shape.slot_bytes;
    from = max(begin, row.inner);
    const uintptr_t to = min(begin + shape.slot_bytes, row.inner_end);
    bytes = to > from ? static_cast<int>(to - from) : 0;
  };
  int fill = 0;       // the next slot to fill
  int fill_part = 0;  // with which part of a row
  // By one lane: fills the next slot with the next part of a row.
  const auto load = [&](int row) {
    uintptr_t from;
    int bytes;
    part(RingRow<Stored>(arguments, row), fill_part, from, bytes);
    const uint32_t barrier = filled + 8 * fill;
    bulk::expect(barrier, bytes);
    if (bytes > 0)
      bulk::copy(bulk::address_of(slots + fill * shape.slot_bytes),
                 reinterpret_cast<const void*>(from), bytes, barrier);
  };
  // The rows of this turn and the next three; at least `rows` where there is none.
  int now = cluster, next = cluster + clusters, then = cluster + 2 * clusters;
  int after = cluster + 3 * clusters;  // without gradients: the row after those
  const auto load_ahead = [&](int which) {
    const int row = which == 0 ? now : which == 1 ? next : then;
    if (lane == 0 && row < rows) load(row);
    fill = fill + 1 == shape.slots ? 0 : fill + 1;
    fill_part = fill_part + 1 == shape.piece_slots ? 0 : fill_part + 1;
  };
  // For how many rows later the slot of part k is filled again: a ring holds two rows at most.
  const auto turns_ahead = [&](int k) {
    const int later = k + shape.slots;
    return later >= 2 * shape.piece_slots ? 2 : later >= shape.piece_slots ? 1 : 0;
  };
  for (int k = 0; k < shape.slots; ++k) load_ahead(k / shape.piece_slots);
  incoming.settle(arguments, memory);

  // The classes of a warp's piece.
  [[maybe_unused]] const auto classes_of = [&](const RingRow<Stored>& row, int of_warp) {
    const uintptr_t begin = row.lines + static_cast<uintptr_t>(of_warp) * piece_bytes;
    const uintptr_t from = max(begin, row.inner), to = min(begin + piece_bytes, row.inner_end);
    int bytes = to > from ? static_cast<int>(to - from) : 0;
    if (of_warp == 0) bytes += static_cast<int>(row.inner - row.start + row.end - row.inner_end);
    return bytes / static_cast<int>(sizeof(Stored));
  };
  // What all warps have sent of a turn: the state of the row without its target, the target's
  // logit, and a row to come.
  State others;
  float told_logit = 0;
  int told_row = 0;
  const auto receive = [&](int turn, [[maybe_unused]] int row_of_turn) {
    const uint32_t round = turn % kRounds;
    bulk::wait(told + 8 * round, turn / kRounds & 1);
    const Message* const of_turn = received + round * all_warps;
    told_logit = kSpread ? __int_as_float(of_turn[1].row) : of_turn[0].logit;
    told_row = of_turn[0].row;
    if (!kGradient && self != 0) return;
    others = State();
    for (int from = lane; from < all_warps; from += 32) {
      State other;
      other.top = of_turn[from].top;
      other.sum = of_turn[from].sum;
      if constexpr (kSpread) {
        other.below = of_turn[from].logit;
        other.fraction = share * classes_of(RingRow<Stored>(arguments, row_of_turn), from);
      }
      merge(others, other, scale);
    }
    others = combine<32>(others, scale);
  };
  const auto finish = [&](int row, const RowTarget<Stored>& target) {
    if (self != 0 || lane != 0) return;
    const RowResult<Stored> result(others, told_logit, scale);
    put_row<Stored>(arguments, memory, row,
                    sums_of(arguments, target, others, result, told_logit, scale));
  };

  int slot = 0;
  uint32_t phases = 0;  // of the slots: a bit each
  // What is read besides the copies is asked for a row ahead, and the numbers that it depends on
  // two. The elements before the first granule and after the last, one a lane of the first warp:
  const auto extra_of = [&](const RingRow<Stored>& row) {
    const int heads = static_cast<int>((row.inner - row.start) / sizeof(Stored));
    const int tails = static_cast<int>((row.end - row.inner_end) / sizeof(Stored));
    if (self == 0 && lane < heads) return lane;
    if (self == 0 && lane >= 8 && lane < 8 + tails)
      return static_cast<int>(arguments.length) - tails + lane - 8;
    return -1;
  };
  // As they are stored: what is made of them would wait for them.
  const auto read_extra = [&](int row) {
    Stored stored{};
    if (row >= rows) return stored;
    const RingRow<Stored> of(arguments, row);
    const int extra = extra_of(of);
    if (extra >= 0) stored = reinterpret_cast<const Stored*>(of.start)[extra];
    return stored;
  };
  const auto read_number = [&](int row) {
    return row < rows ? read_label(arguments, row) : int64_t{-1};
  };
  // The target's logit, by the lane that tells all of it.
  const auto read_logit = [&](int row, int64_t number) {
    Stored stored{};
    if (self == (kSpread ? 1 : 0) && lane == 0 && row < rows && number >= 0 &&
        number < arguments.length)
      stored = (static_cast<const Stored*>(arguments.operands[0]) +
                row * arguments.strides[0].outer)[number];
    return stored;
  };
  int64_t number = read_number(now), next_number = read_number(next);
  Stored own_logit = read_logit(now, number), edge_logit = read_extra(now);
  int turn = 0, before = 0;
  RowTarget<Stored> before_target(arguments, ignore_index(arguments));
  for (; now < rows; ++turn) {
    const RingRow<Stored> row(arguments, now);
    const RowTarget<Stored> target(arguments, number);
    const int64_t then_number = read_number(then);
    const Stored next_logit = read_logit(next, next_number), next_edge = read_extra(next);
    // What the first warp tells all: the target's logit, and the row that comes third.
    float logit = static_cast<float>(widen(own_logit));
    int claimed = rows;
    if (self == 0 && lane == 0) claimed = atomicAdd(memory.claimed, 1);
    const int extra = extra_of(row);
    State state;
    float extra_logit = -INFINITY;
    if (extra >= 0) {
      extra_logit = static_cast<float>(widen(edge_logit));
      state.template begin<Stored>(extra_logit, target.known && extra == target.number, share,
                                   scale);
    }
    const uintptr_t target_place =
        row.start + (target.known ? target.number : arguments.length) * sizeof(Stored);

    const int first_slot = slot;
    for (int k = 0; k < shape.piece_slots; ++k) {
      uintptr_t from;
      int bytes;
      part(row, k, from, bytes);
      bulk::wait(filled + 8 * slot, phases >> slot & 1);
      phases ^= 1u << slot;
      unsigned char* const data = slots + slot * shape.slot_bytes;
      const bool holds_target = target_place - from < static_cast<uintptr_t>(bytes);
      [[maybe_unused]] HeldVector<Stored> held;
      if (kSpread && holds_target) {
        held.hold(data, static_cast<int>(target_place - from), lane);
      }
      if (!kSpread && holds_target) {
        // The target's own is added apart.
        if (lane == 0) narrow(-INFINITY, *reinterpret_cast<Stored*>(data + (target_place - from)));
        __syncwarp();
      }
      V vectors[kVectors];
      read_vectors<kRepeats>(data, bytes / 16, lane, 32, vectors);
      if constexpr (kSpread) {
        add_spread(&vectors, first_bits(bytes / 16, lane, 32), held, share, scale, state);
      } else {
        add_vectors(&vectors, scale, state);
      }
      if (!kGradient) {
        __syncwarp();
        if (lane == 0 && holds_target) bulk::fence();
        load_ahead(turns_ahead(k));
      }
      slot = slot + 1 == shape.slots ? 0 : slot + 1;
    }

    state = combine<32>(state, scale);
    const uint32_t round = turn % kRounds, barrier = told + 8 * round;
    const int place = round * all_warps + self;
    int row_to_come = claimed + kAhead * clusters;
    if constexpr (kSpread) {
      if (self == 1) row_to_come = __float_as_int(logit);
      logit = state.below;
    }
    if (blocks == 1) {
      ring::put({state.top, state.sum, logit, row_to_come}, received[place], barrier, lane == 0);
    } else {
      // What all lanes have read of an earlier turn may be written over from here on.
      __syncwarp();
      if (threadIdx.x == 0) bulk::expect(barrier, all_warps * sizeof(Message));
      logit = __shfl_sync(~0u, logit, 0);
      row_to_come = __shfl_sync(~0u, row_to_come, 0);
      if (lane < blocks)
        ring::send({state.top, state.sum, logit, row_to_come}, messages + place * sizeof(Message),
                   barrier, lane);
    }
    if (!kGradient) {
      // What the row before was told by all has arrived meanwhile.
      if (turn > 0) {
        receive(turn - 1, before);
        finish(before, before_target);
        after = told_row;
      }
      before = now;
      before_target = target;
    } else {
      receive(turn, now);
      finish(now, target);
      after = told_row;
    }
    if (kGradient) {
      const RowResult<Stored> result(others, told_logit, scale);
      const RowFactors factors =
          factors_of(arguments, target, result, incoming.template of<float>(arguments, now),
                     told_logit, scale);
      Stored* const to =
          static_cast<Stored*>(arguments.gradients[0]) + now * arguments.gradient_strides[0].outer;
      unsigned char* const bytes_to = reinterpret_cast<unsigned char*>(to);
      slot = first_slot;
      for (int k = 0; k < shape.piece_slots; ++k) {
        uintptr_t from;
        int bytes;
        part(row, k, from, bytes);
        const unsigned char* const data = slots + slot * shape.slot_bytes;
        if (writes) {
          V vectors[kVectors];
          read_vectors<kRepeats>(data, bytes / 16, lane, 32, vectors);
          // All of them before the first is written: their powers overlap.
          differentiate(vectors, scale, result.reference, factors, target.ignored);
          write_vectors(bytes_to + (from - row.start), bytes / 16, lane, 32, vectors);
        }
        __syncwarp();
        if (lane == 0 && target_place - from < static_cast<uintptr_t>(bytes)) {
          if (writes) narrow(factors.own, to[target.number]);
          bulk::fence();
        }
        load_ahead(turns_ahead(k));
        slot = slot + 1 == shape.slots ? 0 : slot + 1;
      }
      if (writes && extra >= 0) {
        const float out = extra == target.number
                              ? factors.own
                              : any_gradient<Stored>(extra_logit, scale, result.reference, factors);
        narrow(target.ignored ? 0.0f : out, to[extra]);
      }
    }
    now = next;
    next = then;
    then = after;
    number = next_number;
    next_number = then_number;
    own_logit = next_logit;
    edge_logit = next_edge;
  }
  if (!kGradient && turn > 0) {
    receive(turn - 1, before);
    finish(before, before_target);
  }
  // No block ends while another may still send to it.
  ring::synchronise_cluster();
#endif
}

}  // namespace losscli::cuda
