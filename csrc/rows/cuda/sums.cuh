// What a thread has of a row while it is read, and how threads, warps and blocks put it together:
// in an order that does not change from run to run.
#pragma once

#include <cooperative_groups.h>

#include <cstdint>
#include <type_traits>

#include "rows/cuda/powers.cuh"
#include "rows/kernels.h"

namespace losscli::cuda {

// Sums of numbers, for which no powers are needed; the last of them may be `unused`, which the
// compiler leaves out.
template <typename Real, int count, int unused = 0>
struct PlainSums {
  static constexpr int kUsed = count - unused;
  Real sums[count] = {};

  template <typename... Powers>
  __device__ __forceinline__ void merge(const PlainSums& other, const Powers&...) {
#pragma unroll
    for (int s = 0; s < kUsed; ++s) sums[s] += other.sums[s];
  }

  template <int lanes, typename... Powers>
  __device__ __forceinline__ void combine(const Powers&...) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2)
#pragma unroll
      for (int s = 0; s < kUsed; ++s) sums[s] += __shfl_xor_sync(~0u, sums[s], distance);
  }
};

// The sum of the shares of classes, and of each times how far its logit is below the largest.
template <typename Real, bool shares>
struct ShareSums {};
template <typename Real>
struct ShareSums<Real, true> {
  Real shared = 0, below = 0;
};

// The largest logit of each operand of logits, the sum of the powers of how far the logits are
// below it, the distance sum, and the sums of shares.
template <typename Loss, typename Real, typename Stored>
struct LogitSums : ShareSums<Real, Loss::shares> {
  static constexpr int kRows = Loss::rows - Loss::plain_rows;
  static constexpr bool kDistance = Loss::distance.weight >= 0;
  using Powers = LogitPowers<Real, Stored>;

  Real tops[kRows];
  Real sums[kRows];
  Real distance = 0;

  __device__ __forceinline__ LogitSums() {
#pragma unroll
    for (int k = 0; k < kRows; ++k) tops[k] = Powers::kLeast, sums[k] = 0;
  }

  // Takes larger tops. A distance sum grows by its weights' sum times what its distances grow by.
  __device__ __forceinline__ void raise(const Real (&to)[kRows], const Powers& powers) {
    constexpr DistanceSum kSum = Loss::distance;
    Real grown[kRows], factors[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      grown[k] = to[k] - tops[k];
      factors[k] = powers.raising(tops[k], to[k]);
      tops[k] = to[k];
    }
    // The difference may be infinite where nothing has been shared.
    if constexpr (Loss::shares)
      if (this->shared != Real(0)) this->below += this->shared * grown[0];
    if constexpr (kDistance) {
      const Real shift = gap_of(grown);
      const Real factor = factors[kSum.weight], weights = sums[kSum.weight];
      const bool nothing = factor == Real(0) || weights == Real(0);
      distance = nothing ? Real(0) : factor * (distance + weights * shift);
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) sums[k] *= factors[k];
  }

  __device__ __forceinline__ void merge(LogitSums other, const Powers& powers) {
    Real to[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) to[k] = Powers::larger(tops[k], other.tops[k]);
    raise(to, powers);
    other.raise(to, powers);
#pragma unroll
    for (int k = 0; k < kRows; ++k) sums[k] += other.sums[k];
    distance += other.distance;
    if constexpr (Loss::shares) this->shared += other.shared, this->below += other.below;
  }

  // Adds elements of all operands, none above the tops: `x[k][i]` is element i of operand k,
  // `shares[i]` the share of its class, where classes have shares, and `are_there[i]` whether it is
  // no padding.
  template <int count>
  __device__ __forceinline__ void add(const Real (&x)[kRows][count], const Real (&shares)[count],
                                      const bool (&are_there)[count], const Powers& powers) {
    if constexpr (Powers::kShort) {
      bool near = true;
#pragma unroll
      for (int k = 0; k < kRows; ++k) near = near && powers.is_near(tops[k]);
      if (near) return add_as<true>(x, shares, are_there, powers);
    }
    add_as<false>(x, shares, are_there, powers);
  }

  // Takes powers of 16 bits for those of the largest logit, of which that is 1.
  __device__ __forceinline__ void settle(const Powers& powers) {
    if constexpr (Powers::kShort) {
      Real factors[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        factors[k] = power_of_two(-powers.beyond(tops[k]));
        sums[k] *= factors[k];
      }
      if constexpr (kDistance) distance *= factors[Loss::distance.weight];
    }
  }

  template <bool near, int count>
  __device__ __forceinline__ void add_as(const Real (&x)[kRows][count],
                                         [[maybe_unused]] const Real (&shares)[count],
                                         [[maybe_unused]] const bool (&are_there)[count],
                                         const Powers& powers) {
    constexpr DistanceSum kSum = Loss::distance;
    Real references[kRows], apart = 0;
    if constexpr (near) {
#pragma unroll
      for (int k = 0; k < kRows; ++k) references[k] = powers.reference(tops[k]);
      apart = gap_of(tops);
    }
    // Several sums of each kind, so that one addition need not wait for another.
    constexpr int kParts = count < 4 ? 1 : 4;
    Real parts[kRows][kParts] = {}, distances[kParts] = {};
    [[maybe_unused]] Real shared[kParts] = {}, of_shares[kParts] = {};
#pragma unroll
    for (int i = 0; i < count; ++i) {
      Real below[kRows], e[kRows], far[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if constexpr (near) {
          below[k] = x[k][i];
          far[k] = powers.exponent(x[k][i], references[k]);
          e[k] = power_of_two(far[k]);
        } else {
          below[k] = far[k] = tops[k] - x[k][i];
          e[k] = powers.power(below[k]);
        }
        parts[k][i % kParts] += e[k];
      }
      if constexpr (kDistance) {
        const Real gap = near ? apart - gap_of(below) : gap_of(below), weight = e[kSum.weight];
        // Not a product: 0 times infinity is NaN.
        if (weight != Real(0)) distances[i % kParts] = fma(weight, gap, distances[i % kParts]);
      }
      if constexpr (Loss::shares) {
        shared[i % kParts] += shares[i];
        // A class of probability 0 and logit -inf makes the loss NaN, as in PyTorch. The row's own
        // class, whose logit stands here as -inf, has no share.
        if (Loss::labelled ? shares[i] != Real(0) : are_there[i])
          of_shares[i % kParts] = fma(shares[i], far[0], of_shares[i % kParts]);
      }
    }
#pragma unroll
    for (int part = 1; part < kParts; ++part) {
#pragma unroll
      for (int k = 0; k < kRows; ++k) parts[k][0] += parts[k][part];
      distances[0] += distances[part];
      if constexpr (Loss::shares) shared[0] += shared[part], of_shares[0] += of_shares[part];
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) sums[k] += parts[k][0];
    if constexpr (kDistance) distance += distances[0];
    if constexpr (Loss::shares) {
      // Exponents are below that of the top.
      if constexpr (near)
        of_shares[0] = (shared[0] * powers.beyond(tops[0]) - of_shares[0]) * powers.unit;
      this->shared += shared[0];
      this->below += of_shares[0];
    }
  }

  // The distances of the operands, each with the factor 1, -1 or 0.
  __device__ __forceinline__ static Real gap_of(const Real (&of)[kRows]) {
    constexpr DistanceSum kSum = Loss::distance;
    Real gap = 0;
    bool begun = false;
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (kSum.factors[k] == 0) continue;
      const Real term = kSum.factors[k] > 0 ? of[k] : -of[k];
      gap = begun ? gap + term : term;
      begun = true;
    }
    return gap;
  }

  template <int lanes>
  __device__ __forceinline__ void combine(const Powers& powers) {
    Real to[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      to[k] = tops[k];
#pragma unroll
      for (int distance = lanes / 2; distance > 0; distance /= 2)
        to[k] = Powers::larger(to[k], __shfl_xor_sync(~0u, to[k], distance));
    }
    raise(to, powers);
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart /= 2) {
#pragma unroll
      for (int k = 0; k < kRows; ++k) sums[k] += __shfl_xor_sync(~0u, sums[k], apart);
      if constexpr (kDistance) distance += __shfl_xor_sync(~0u, distance, apart);
      if constexpr (Loss::shares) {
        this->shared += __shfl_xor_sync(~0u, this->shared, apart);
        this->below += __shfl_xor_sync(~0u, this->below, apart);
      }
    }
  }
};

// The threads that share a row: a warp, a block, or the blocks of a cluster; fewer than 32 are one
// of each warp of a block, which has 32 rows, or one alone.
template <int threads>
struct RowTeam {
  static constexpr int kWarps = threads / 32;

  int lane, warp, rank = 0, blocks = 1;
  int turn = 0;  // which of two places is told in next

  __device__ __forceinline__ RowTeam() {
    lane = threadIdx.x % 32;
    warp = threadIdx.x / 32;
#if __CUDA_ARCH__ >= 900
    if constexpr (threads == 512) {
      const auto cluster = cooperative_groups::this_cluster();
      rank = static_cast<int>(cluster.block_rank());
      blocks = static_cast<int>(cluster.num_blocks());
    }
#endif
  }

  // This thread's number among all that share a row, and how many there are.
  __device__ __forceinline__ int64_t number() const {
    if (threads == 1) return 0;
    if (threads <= 32) return threads == 32 ? lane : warp;
    return rank * threads + static_cast<int>(threadIdx.x);
  }
  __device__ __forceinline__ int64_t count() const { return int64_t{threads} * blocks; }

  // Puts together what the threads of a row have, in each of them. Each turn has a place of its own
  // of two: who is late with reading one is not two turns late, for all meet in between.
  template <typename Sums, typename Powers>
  __device__ __forceinline__ void combine(Sums& mine, const Powers& powers) {
    if constexpr (threads == 1) return;
    if constexpr (threads < 32) {
      __shared__ __align__(16) unsigned char bytes[threads * 32 * sizeof(Sums)];
      auto* const places = reinterpret_cast<Sums*>(bytes);
      places[threadIdx.x] = mine;
      __syncthreads();
      mine = places[lane];
      for (int other = 1; other < threads; ++other) mine.merge(places[other * 32 + lane], powers);
      __syncthreads();
      return;
    }
    mine.template combine<32>(powers);
    if constexpr (threads > 32) {
      // As bytes: what has initial values cannot be shared.
      __shared__ __align__(16) unsigned char bytes[(2 * kWarps + 2) * sizeof(Sums)];
      auto* const places = reinterpret_cast<Sums*>(bytes);
      Sums* const told = places + turn * kWarps;
      Sums* const of_block = places + 2 * kWarps + turn;
      if (lane == 0) told[warp] = mine;
      __syncthreads();
      mine = told[lane % kWarps];
      mine.template combine<kWarps>(powers);
#if __CUDA_ARCH__ >= 900
      if (blocks > 1) {
        const auto cluster = cooperative_groups::this_cluster();
        if (threadIdx.x == 0) *of_block = mine;
        cluster.sync();
        // Beyond the blocks there is nothing to add.
        Sums other;
        if (lane % 8 < blocks) other = *cluster.map_shared_rank(of_block, lane % 8);
        other.template combine<8>(powers);
        mine = other;
      }
#endif
      (void)of_block;
      turn ^= 1;
    }
  }

  // Before a block ends, whose memory others may still read.
  __device__ __forceinline__ void leave() const {
#if __CUDA_ARCH__ >= 900
    if constexpr (threads == 512)
      if (blocks > 1) cooperative_groups::this_cluster().sync();
#endif
  }
};

}  // namespace losscli::cuda
