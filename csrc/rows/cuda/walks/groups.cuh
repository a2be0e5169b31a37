// The walk for rows that lie alike and are short, for GPUs with clusters (compute capability 9.0
// and newer). A block ends after its rows. Where rows are many, eight lanes of a warp share one, so
// that what a row takes besides its elements is a quarter of what it takes a whole warp, or a warp
// does where a later pass reads it again; where they are few, four warps do, to be done soon. Each
// lane copies its own vectors to slots in shared memory, a part of the row each, and so waits for
// no other. A row that is read again is held there.
#pragma once

#include "rows/cuda/bulk_copy.cuh"
#include "rows/cuda/policies.h"
#include "rows/cuda/vectors.cuh"

namespace losscli::cuda {

// `kLanes`: those that share a row. `kGradients`: how many operands may have gradients, the first
// ones.
template <template <typename> class Formula, typename Stored, int kLanes, int kGradients>
class GroupRows : RowVectors<Formula, Stored, kLanes, kGradients> {
  using Base = RowVectors<Formula, Stored, kLanes, kGradients>;
  using Base::a_, Base::kAgain, Base::kRows, Base::kVectorBytes, Base::lane_, Base::place_of,
      Base::rows_, Base::state_;
  using typename Base::Extra, typename Base::Known, typename Base::Loss, typename Base::Part,
      typename Base::Span, typename Base::Sums, typename Base::V;
  using Block = GroupBlock<Loss, kLanes, kGradients>;
  static constexpr int kVectors = Block::kVectors;
  static constexpr int kPartBytes = kVectors * kVectorBytes;

 public:
  __device__ __forceinline__ GroupRows(const RowArguments& arguments, const RowMemory& memory,
                                       const RowFormula<Formula, Stored>& formula,
                                       const SlotShape& shape, unsigned char* shared)
      : Base(arguments, memory, formula, shape.whole), count_(shape.slots) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    slots_ = shared + warp * count_ * Block::kSlotBytes + lane * 16;
  }

  __device__ __forceinline__ void run() {
    const int step = static_cast<int>(gridDim.x) * Block::kRows;
    int first = static_cast<int>(blockIdx.x) * Block::kRows;
    // Rows are on their way before anything else is read, but where they may not be needed.
    const bool checks = kGradients > 0 && a_.guess == Guess::check;
    if (!checks) begin(first);
    if constexpr (kGradients > 0) {
      state_.look(false);
      if (state_.incoming.is_done) return;
      state_.template count<Block::kThreads>();
    }
    if (checks) begin(first);
    one();
    // Only those that look whether gradients are right may have more.
    while (kGradients > 0 && (first += step) < rows_) {
      begin(first);
      one();
    }
    state_.template sum_block<Block::kThreads, kLanes>(leads_);
  }

 private:
  // Begins with the rows of a block.
  __device__ __forceinline__ void begin(int first) {
    row_ = first + static_cast<int>(threadIdx.x) / kLanes;
    leads_ = lane_ == 0 && row_ < rows_;
    row_ = min(row_, rows_ - 1);
    span_ = this->span_of(row_);
    part_ = {span_.heads * static_cast<int>(sizeof(Stored)), span_.vectors * 16};
#pragma unroll
    for (int k = 0; k < kRows; ++k) from_[k] = this->start(k, row_) + part_.from + lane_ * 16;
#pragma unroll 1
    for (int k = 0; k < count_; ++k) fill(k);
    known_ = this->known_of(row_);
  }

  __device__ __forceinline__ void one() {
    state_.begin(row_, known_);
    Sums sums;
    pass<true>([&](auto& vectors, const Part& part) { this->add_part(vectors, part, sums); });
    Extra extra = {-1};
    // Eight lanes may have more than one each, and need none again.
#pragma unroll
    for (int beside = lane_; beside < 2 * V::kCount; beside += kLanes)
      if (!this->whole_) {
        extra = this->extra_of(row_, span_.extra(beside));
        this->add_extra(extra, sums);
      }
    exchange(sums);
    this->take(sums);
    this->later_passes(
        row_, extra, leads_ && !state_.sums_up(),
        [&](auto, const auto& body) { pass<false>(body); }, [&](auto& sums) { exchange(sums); });
  }

  // Begins to copy this lane's vectors of a part of the row.
  __device__ __forceinline__ void fill(int number) const {
    const int from = number * kPartBytes;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (from + place_of(v) < part_.bytes)
#pragma unroll
        for (int k = 0; k < kRows; ++k)
          bulk::copy(place(number, k, v), from_[k] + from + v * kVectorBytes, 16);
    bulk::commit();
  }

  // Where they are.
  __device__ __forceinline__ unsigned char* place(int number, int operand, int vector) const {
    const int slot = kAgain ? number : number % kGroupSlots;
    return slots_ + slot * Block::kSlotBytes + (operand * kVectors + vector) * 512;
  }

  // Calls `body` with this lane's vectors of the row, and what part of it they are.
  template <bool kFirst, typename Body>
  __device__ __forceinline__ void pass(const Body& body) {
    if (kFirst && kAgain) bulk::wait<0>();
    for (int number = 0; number * kPartBytes < part_.bytes; ++number) {
      const int from = number * kPartBytes;
      const Part part = {part_.from + from, min(kPartBytes, part_.bytes - from)};
      if (kFirst) {
        if (!kAgain) bulk::wait<kGroupSlots - 1>();
        // The element of the row's class is added apart: in its place is what adds nothing.
        const int own = static_cast<int>(this->own_place(part));
        if (this->has_own(part) && own / 16 % kLanes == lane_)
          narrow(-INFINITY,
                 *reinterpret_cast<Stored*>(place(number, 0, own / kVectorBytes) + own % 16));
      }
      const auto of = [&](int k, int v, bool) { return place(number, k, v); };
      if (kLanes == 32 && part_.bytes <= kVectorBytes)
        this->template read<1, kFirst>(part, of, body);
      else
        this->template read<kVectors, kFirst>(part, of, body);
      // What was in the slot has been read.
      if (!kAgain) fill(number + kGroupSlots);
    }
  }

  // Puts together what the lanes of a row have, in each of them.
  template <typename Sums>
  __device__ __forceinline__ void exchange(Sums& mine) {
    mine.template combine<(kLanes < 32 ? kLanes : 32)>(state_.powers);
    if constexpr (kLanes > 32) {
      constexpr int kWarps = kLanes / 32;
      static_assert(sizeof(Sums) <= kToldBytes);
      __shared__ alignas(16) unsigned char told[2][kWarps][kToldBytes];
      const auto of = [&](int warp) { return reinterpret_cast<Sums*>(told[turn_][warp]); };
      if (lane_ % 32 == 0) *of(lane_ / 32) = mine;
      __syncthreads();
      mine = *of(lane_ % kWarps);
      mine.template combine<kWarps>(state_.powers);
      turn_ ^= 1;
    }
  }

  const int count_;  // of slots
  int row_;
  int turn_ = 0;
  bool leads_;  // whether this lane ends the row
  Span span_;
  Part part_;  // all vectors of the row
  Known known_;
  const unsigned char* from_[kRows];  // the lane's first vectors
  unsigned char* slots_;              // of the lane
};

template <template <typename> class Formula, typename Stored, int kLanes, int kGradients>
__global__ void __launch_bounds__(GroupBlock<Formula<RealOf<Stored>>, kLanes, kGradients>::kThreads,
                                  GroupBlock<Formula<RealOf<Stored>>, kLanes, kGradients>::kBlocks)
    groups_kernel(const __grid_constant__ RowArguments arguments,
                  const __grid_constant__ RowMemory memory,
                  const __grid_constant__ RowFormula<Formula, Stored> formula,
                  const __grid_constant__ SlotShape shape) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  GroupRows<Formula, Stored, kLanes, kGradients> rows(arguments, memory, formula, shape, shared);
  rows.run();
#endif
}

}  // namespace losscli::cuda
