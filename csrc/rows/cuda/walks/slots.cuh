// The walk for rows that lie alike, for GPUs with clusters and bulk copies (compute
// capability 9.0 and newer): each element is read once, and its gradient written once.
//
// A team of warps shares a row: one warp or several of a block, or all of a cluster of blocks. The
// teams stay and take one row after the other. Each warp has a ring of slots, which bulk copies
// fill with its parts of the rows to come: a slot has a part of each operand. Where a pass after
// the first reads the row again, a slot is filled anew after the last pass; no row is read twice
// from memory.
#pragma once

#include <cooperative_groups.h>

#include "rows/cuda/bulk_copy.cuh"
#include "rows/cuda/policies.h"
#include "rows/cuda/vectors.cuh"

namespace losscli::cuda {

template <template <typename> class Formula, typename Stored, int kGradients>
class SlotRows : RowVectors<Formula, Stored, 32, kGradients> {
  using Base = RowVectors<Formula, Stored, 32, kGradients>;
  using Base::kAgain, Base::kRows, Base::kVectorBytes, Base::lane_, Base::place_of, Base::rows_,
      Base::start, Base::state_;
  using typename Base::Extra, typename Base::Known, typename Base::Loss, typename Base::Part,
      typename Base::Span, typename Base::Sums, typename Base::V;
  static constexpr int kVectors = SlotBlock<Loss>::kVectors, kWarps = SlotBlock<Loss>::kWarps;

 public:
  __device__ __forceinline__ SlotRows(const RowArguments& arguments, const RowMemory& memory,
                                      const SlotShape& shape, unsigned char* shared)
      : Base(arguments, memory, RowFormula<Formula, Stored>(arguments), shape.whole),
        shape_(shape),
        warp_(threadIdx.x / 32),
        team_(shape.team) {
    const auto cluster = cooperative_groups::this_cluster();
    rank_ = static_cast<int>(cluster.block_rank());
    blocks_ = static_cast<int>(cluster.num_blocks());
    const int teams = kWarps / team_;
    self_ = rank_ * team_ + warp_ % team_;
    all_ = blocks_ * team_;
    first_ = static_cast<int>(blockIdx.x) / blocks_ * teams + warp_ / team_;
    step_ = static_cast<int>(gridDim.x) / blocks_ * teams;
    const int slot_bytes = kRows * shape.slot_bytes;
    slots_ = shared + warp_ * shape.slots * slot_bytes;
    unsigned char* const barriers = shared + kWarps * shape.slots * slot_bytes;
    filled_ = bulk::address_of(barriers) + warp_ * shape.slots * 8;
    // Two places of all warps of a row, for each team.
    told_ = barriers + kWarps * shape.slots * 8 + 2 * kToldBytes * (warp_ - self_ % shape.team);
  }

  __device__ __forceinline__ void run() {
    if (kGradients > 0) state_.look(false);
    if (state_.incoming.is_done) return;
    if (lane_ == 0) {
      for (int k = 0; k < shape_.slots; ++k) bulk::initialise(filled_ + 8 * k, 1);
      bulk::fence_barriers();
    }
    __syncthreads();
    // No block tells another anything before that runs.
    if (blocks_ > 1) cooperative_groups::this_cluster().sync();
    fill_row_ = first_;
    begin_fill();
    for (int k = 0; k < shape_.slots; ++k) fill();
    // Of 32 rows each lane knows one.
    Known known;
    for (int row = first_, turn = 0; row < rows_; row += step_, turn = (turn + 1) % 32) {
      if (turn == 0) known = this->known_of(row + lane_ * step_);
      state_.begin(row, known.of_lane(turn));
      const Span span = this->span_of(row);
      const Extra extra = this->extra_of(row, self_ == 0 ? span.extra(lane_) : -1);
      Sums sums;
      pass<true, !kAgain>(
          span, [&](auto& vectors, const Part& part) { this->add_part(vectors, part, sums); });
      if (span.heads + span.tails > 0) this->add_extra(extra, sums);
      exchange(sums);
      this->take(sums);
      this->later_passes(
          row, extra, self_ == 0 && lane_ == 0,
          [&](auto last, const auto& body) { pass<false, decltype(last)::value>(span, body); },
          [&](auto& sums) { exchange(sums); });
    }
    // No block ends while another may still read what it told.
    if (blocks_ > 1) cooperative_groups::this_cluster().sync();
  }

 private:
  // All that this warp has of a row.
  __device__ __forceinline__ Part piece_of(const Span& span) const {
    const int most = shape_.piece_slots * shape_.slot_bytes, from = self_ * most;
    return {span.heads * static_cast<int>(sizeof(Stored)) + from,
            max(min(most, span.vectors * 16 - from), 0)};
  }
  __device__ __forceinline__ unsigned char* slot_of(int slot) const {
    return slots_ + slot * kRows * shape_.slot_bytes;
  }

  // Begins to fill slots with another row.
  __device__ __forceinline__ void begin_fill() {
    fill_part_ = 0;
    if (fill_row_ >= rows_) return;
    const Part piece = piece_of(this->span_of(fill_row_));
    fill_bytes_ = piece.bytes;
#pragma unroll
    for (int k = 0; k < kRows; ++k) fill_from_[k] = start(k, fill_row_) + piece.from;
  }

  // Fills the next slot with the next part of the rows to come.
  __device__ __forceinline__ void fill() {
    if (lane_ == 0 && fill_row_ < rows_) {
      const int bytes = max(min(shape_.slot_bytes, fill_bytes_), 0);
      const uint32_t barrier = filled_ + 8 * fill_slot_;
      bulk::expect(barrier, kRows * bytes);
      if (bytes > 0)
#pragma unroll
        for (int k = 0; k < kRows; ++k)
          bulk::copy(bulk::address_of(slot_of(fill_slot_) + k * shape_.slot_bytes), fill_from_[k],
                     bytes, barrier);
    }
    fill_bytes_ -= shape_.slot_bytes;
#pragma unroll
    for (int k = 0; k < kRows; ++k) fill_from_[k] += shape_.slot_bytes;
    fill_slot_ = fill_slot_ + 1 == shape_.slots ? 0 : fill_slot_ + 1;
    if (++fill_part_ == shape_.piece_slots) {
      fill_row_ += step_;
      begin_fill();
    }
  }

  // Calls `body` with this warp's vectors of the row, and what part of it they are. The first pass
  // waits for them; after the last their place is filled again.
  template <bool kFirst, bool kLast, typename Body>
  __device__ __forceinline__ void pass(const Span& span, const Body& body) {
    int slot = row_slot_;
    const Part piece = piece_of(span);
    Part part = piece;
    for (int k = 0; k < shape_.piece_slots; ++k, part.from += shape_.slot_bytes) {
      part.bytes = min(shape_.slot_bytes, piece.from + piece.bytes - part.from);
      unsigned char* const data = slot_of(slot);
      const bool own = this->has_own(part);
      if (kFirst) {
        bulk::wait(filled_ + 8 * slot, phases_ >> slot & 1);
        phases_ ^= 1u << slot;
        if (own) {
          // Which is added apart: in its place is what adds nothing.
          if (lane_ == 0)
            narrow(-INFINITY, *reinterpret_cast<Stored*>(data + this->own_place(part)));
          __syncwarp();
        }
      }
      const auto from = [&](int k, int v, bool has) {
        return data + k * shape_.slot_bytes + (has ? place_of(v) : 0);
      };
      if (shape_.slot_bytes <= kVectorBytes)
        this->template read<1, kFirst>(part, from, body);
      else
        this->template read<kVectors, kFirst>(part, from, body);
      if (kLast) {
        __syncwarp();
        if (own && lane_ == 0) bulk::fence();
        fill();
      }
      slot = slot + 1 == shape_.slots ? 0 : slot + 1;
    }
    if (kLast) row_slot_ = slot;
  }

  // Puts together what the warps of a row have, in each of their lanes. Each turn has one of two
  // places, whatever the size of the sums: who reads late is not two turns late, for all meet in
  // between.
  template <typename Sums>
  __device__ __forceinline__ void exchange(Sums& mine) {
    static_assert(sizeof(Sums) <= kToldBytes);
    mine.template combine<32>(state_.powers);
    if (all_ == 1) return;
    const auto told = [places = told_ + turn_ * all_ * kToldBytes](int warp) {
      return reinterpret_cast<Sums*>(places + warp * kToldBytes);
    };
    turn_ ^= 1;
    if (blocks_ == 1) {
      if (lane_ == 0) *told(self_) = mine;
      asm volatile("barrier.sync %0, %1;" ::"r"(warp_ / team_ + 1), "r"(team_ * 32) : "memory");
    } else {
      const auto cluster = cooperative_groups::this_cluster();
      if (lane_ < blocks_) *cluster.map_shared_rank(told(self_), lane_) = mine;
      cluster.sync();
    }
    mine = Sums();
    for (int from = lane_; from < all_; from += 32) mine.merge(*told(from), state_.powers);
    mine.template combine<32>(state_.powers);
  }

  const SlotShape& shape_;
  int warp_;
  int team_;                   // warps of a block that share a row
  int rank_ = 0, blocks_ = 1;  // of the cluster
  int self_, all_;             // of the warps that share a row
  int first_, step_;           // the rows of a team
  unsigned char* slots_;       // of the warp
  uint32_t filled_;            // the barriers of the slots
  unsigned char* told_;        // what the warps of a row tell each other
  int turn_ = 0;
  int row_slot_ = 0;  // the first slot of the row
  uint32_t phases_ = 0;
  int fill_slot_ = 0, fill_part_ = 0, fill_row_ = 0;
  int fill_bytes_ = 0;                     // that are left of the row's piece
  const unsigned char* fill_from_[kRows];  // the next of them
};

template <template <typename> class Formula, typename Stored, int kGradients>
__global__ void __launch_bounds__(SlotBlock<Formula<RealOf<Stored>>>::kWarps * 32, 1)
    slots_kernel(const __grid_constant__ RowArguments arguments,
                 const __grid_constant__ RowMemory memory,
                 const __grid_constant__ SlotShape shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  SlotRows<Formula, Stored, kGradients> rows(arguments, memory, shape, shared);
  rows.run();
#endif
}

}  // namespace losscli::cuda
