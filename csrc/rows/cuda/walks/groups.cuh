// The walk for many short rows without gradients, for GPUs with clusters (compute capability 9.0
// and newer). Eight lanes of a warp share a row, so that what a row takes besides its elements is a
// quarter of what it takes a whole warp, and a block ends after its rows. Each lane copies its own
// vectors to slots in shared memory, a part of the row each, and so waits for no other.
#pragma once

#include "rows/cuda/policies.h"
#include "rows/cuda/vectors.cuh"

namespace losscli::cuda {

template <template <typename> class Formula, typename Stored>
class GroupRows : RowVectors<Formula, Stored, kGroupLanes, false> {
  using Base = RowVectors<Formula, Stored, kGroupLanes, false>;
  using Base::a_, Base::kRows, Base::kVectorBytes, Base::lane_, Base::place_of, Base::rows_,
      Base::state_;
  using typename Base::Loss, typename Base::Span, typename Base::Sums, typename Base::V;
  using Block = GroupBlock<Loss>;
  static constexpr int kVectors = Block::kVectors;
  static constexpr int kPartBytes = kVectors * kVectorBytes;

 public:
  __device__ __forceinline__ GroupRows(const RowArguments& arguments, const RowMemory& memory,
                                       const RowFormula<Formula, Stored>& formula, bool whole,
                                       unsigned char* shared)
      : Base(arguments, memory, formula, whole) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    row_ = static_cast<int>(blockIdx.x) * Block::kRows + threadIdx.x / kGroupLanes;
    leads_ = lane_ == 0 && row_ < rows_;
    row_ = min(row_, rows_ - 1);
    slots_ = shared + warp * kGroupSlots * Block::kSlotBytes + lane * 16;
  }

  __device__ __forceinline__ void run() {
    const Span span = this->span_of(row_);
    part_ = {span.heads * static_cast<int>(sizeof(Stored)), span.vectors * 16};
#pragma unroll
    for (int k = 0; k < kRows; ++k) from_[k] = this->start(k, row_) + part_.from + lane_ * 16;
    for (int k = 0; k < kGroupSlots; ++k) fill(k);
    state_.begin(row_, this->known_of(row_));
    Sums sums = add_parts();
#pragma unroll
    for (int beside = lane_; beside < 2 * V::kCount; beside += kGroupLanes)
      if (!this->whole_) this->add_extra(this->extra_of(row_, span.extra(beside)), sums);
    sums.template combine<kGroupLanes>(state_.powers);
    this->take(sums);
    state_.template finish_block<Block::kWarps * 32, kGroupLanes>(leads_);
  }

 private:
  // Begins to copy this lane's vectors of a part of the row.
  __device__ __forceinline__ void fill(int number) const {
    const int from = number * kPartBytes;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (from + place_of(v) < part_.bytes)
#pragma unroll
        for (int k = 0; k < kRows; ++k)
          copy_vector(place(number, k, v), from_[k] + from + v * kVectorBytes);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  // Where they are.
  __device__ __forceinline__ unsigned char* place(int number, int operand, int vector) const {
    return slots_ + number % kGroupSlots * Block::kSlotBytes + (operand * kVectors + vector) * 512;
  }

  // What the vectors of the row add.
  __device__ __forceinline__ Sums add_parts() {
    Sums sums;
    auto part = part_;
    // In bytes from the first vector.
    int own =
        static_cast<int>(state_.known.facts.label) * static_cast<int>(sizeof(Stored)) - part.from;
    for (int number = 0; number * kPartBytes < part_.bytes; ++number) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kGroupSlots - 1) : "memory");
      if constexpr (Loss::labelled) {
        // The element of the row's class is added apart: in its place is what adds nothing.
        if (own >= 0 && own < min(kPartBytes, part.bytes) && own / 16 % kGroupLanes == lane_)
          narrow(-INFINITY,
                 *reinterpret_cast<Stored*>(place(number, 0, own / kVectorBytes) + own % 16));
        own -= kPartBytes;
      }
      V vectors[kRows][kVectors];
      const auto read = [&](auto full) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
#pragma unroll
          for (int k = 0; k < kRows; ++k)
            if (decltype(full)::value || place_of(v) < part.bytes)
              vectors[k][v].set(*reinterpret_cast<const uint4*>(place(number, k, v)));
            else
              Base::leave_out(k, vectors[k][v]);
      };
      with_constant(part.bytes >= kPartBytes, read);
      this->add_part(vectors, part, sums);
      part.from += kPartBytes;
      part.bytes -= kPartBytes;
      // What was in the slot has been read.
      fill(number + kGroupSlots);
    }
    return sums;
  }

  __device__ __forceinline__ static void copy_vector(const void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(from)
                 : "memory");
  }

  int row_;
  bool leads_;                        // whether this lane ends the row
  typename Base::Part part_;          // all vectors of the row
  const unsigned char* from_[kRows];  // the lane's first vectors
  unsigned char* slots_;              // of the lane
};

template <template <typename> class Formula, typename Stored>
__global__ void __launch_bounds__(GroupBlock<Formula<RealOf<Stored>>>::kWarps * 32,
                                  GroupBlock<Formula<RealOf<Stored>>>::kBlocks)
    groups_kernel(const __grid_constant__ RowArguments arguments,
                  const __grid_constant__ RowMemory memory,
                  const __grid_constant__ RowFormula<Formula, Stored> formula, const bool whole) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared[];
  GroupRows<Formula, Stored> rows(arguments, memory, formula, whole, shared);
  rows.run();
#endif
}

}  // namespace losscli::cuda
