// Partial sums: what a thread adds up within a tile, what it carries from tile to tile, and their
// sum over a warp and a block.
//
// A partial sum is a struct of `kWords` doubles with add() and scaled(), so that a sum with more
// parts, such as a numerator and a denominator, goes the same way as one number.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/runtime.h"

namespace losscli::cuda {

constexpr int kWarp = 32;

// What a sum is multiplied by: `scale`, or where that is one over a whole number, divided by
// `divisor`, which rounds once less; 0 where it is not.
struct Scaling {
  double scale = 1;
  double divisor = 0;

  Scaling(double scale, int64_t size) : scale(scale) {
    if (size > 0 && scale == 1.0 / static_cast<double>(size)) divisor = static_cast<double>(size);
  }
};

// A sum whose rounding errors are summed beside it, as if in twice the digits of double.
struct CompensatedSum {
  static constexpr int kWords = 2;
  double words[kWords] = {};  // the sum, and what its rounding has left out

  // Two-Sum (Knuth): the error of an addition is itself a double.
  __device__ __forceinline__ void add(double value) {
    const double sum = words[0] + value, added = sum - words[0];
    words[1] += (words[0] - (sum - added)) + (value - added);
    words[0] = sum;
  }

  __device__ __forceinline__ void add(const CompensatedSum& other) {
    const double rest = words[1] + other.words[1];
    words[1] = 0;
    add(other.words[0]);
    words[1] += rest;
  }

  // After an infinity the error is NaN, and the plain sum is what there is to say.
  __device__ __forceinline__ double rounded() const {
    return isfinite(words[1]) ? words[0] + words[1] : words[0];
  }

  __device__ __forceinline__ double scaled(const Scaling& scaling) const {
    const double sum = rounded();
    if (scaling.divisor == 0) return sum * scaling.scale;
    const double quotient = sum / scaling.divisor;
    if (!isfinite(quotient) || !isfinite(words[1])) return quotient;
    const double rest = __fma_rn(-quotient, scaling.divisor, sum) + ((words[0] - sum) + words[1]);
    return quotient + rest / scaling.divisor;
  }
};

// Within a tile float32 is added in float32: few summands, at the speed of the memory.
template <typename Real>
struct TileSum : CompensatedSum {};
template <>
struct TileSum<float> {
  float value = 0;
  __device__ __forceinline__ void add(float other) { value += other; }
  __device__ __forceinline__ void add(const TileSum& other) { value += other.value; }
};

// A sum of numbers that had fewer digits than it.
struct PlainSum {
  static constexpr int kWords = 1;
  double words[kWords] = {};

  __device__ __forceinline__ void add(float value) { words[0] += value; }
  __device__ __forceinline__ void add(const TileSum<float>& tile) { words[0] += tile.value; }
  __device__ __forceinline__ void add(const PlainSum& other) { words[0] += other.words[0]; }
  __device__ __forceinline__ double rounded() const { return words[0]; }
  __device__ __forceinline__ double scaled(const Scaling& scaling) const {
    return words[0] * scaling.scale;
  }
};

template <typename Real>
using SumOf = std::conditional_t<std::is_same_v<Real, double>, CompensatedSum, PlainSum>;

static_assert(CompensatedSum::kWords <= kMostWords, "raise kMostWords");

// The sum over the first `count` lanes of a warp, a power of two, in its lane 0.
template <int count = kWarp, typename Sum>
__device__ __forceinline__ Sum warp_sum(Sum sum) {
#pragma unroll
  for (int distance = count / 2; distance > 0; distance /= 2) {
    Sum other;
#pragma unroll
    for (int w = 0; w < Sum::kWords; ++w)
      other.words[w] = __shfl_down_sync(0xffffffffu, sum.words[w], distance);
    sum.add(other);
  }
  return sum;
}

// Shared memory for the sums of so many warps.
template <typename Sum, int count = kWarp>
struct Scratch {
  double words[count][Sum::kWords];

  __device__ __forceinline__ void put(int i, const Sum& sum) {
#pragma unroll
    for (int w = 0; w < Sum::kWords; ++w) words[i][w] = sum.words[w];
  }
  __device__ __forceinline__ Sum get(int i) const {
    Sum sum;
#pragma unroll
    for (int w = 0; w < Sum::kWords; ++w) sum.words[w] = words[i][w];
    return sum;
  }
};

// The sum over a block of so many threads, in thread 0.
template <int threads, typename Sum>
__device__ __forceinline__ Sum block_sum(Sum sum, Scratch<Sum>& scratch) {
  constexpr int kWarps = threads / kWarp;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  sum = warp_sum(sum);
  __syncthreads();
  if (lane == 0) scratch.put(warp, sum);
  __syncthreads();
  if (warp != 0) return Sum();
  return warp_sum<kWarps>(lane < kWarps ? scratch.get(lane) : Sum());
}

}  // namespace losscli::cuda
