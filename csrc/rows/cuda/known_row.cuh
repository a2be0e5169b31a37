// What is known of a row before it is read.
#pragma once

#include "rows/cuda/incoming.cuh"

namespace losscli::cuda {

template <typename Stored, typename Real>
__device__ __forceinline__ void put_value(const RowArguments& arguments, int64_t place,
                                          Real value) {
  if (arguments.wide)
    static_cast<Real*>(arguments.value)[place] = value;
  else
    narrow(value, static_cast<Stored*>(arguments.value)[place]);
}

// The value of a sum or a mean.
template <typename Stored>
__device__ __forceinline__ void put_total(const RowArguments& arguments, const RowSums& sums) {
  const bool is_mean = arguments.reduction == RowReduction::mean;
  const double value = is_mean ? sums.loss() / sums.count() : sums.loss();
  put_value<Stored>(arguments, 0, static_cast<RealOf<Stored>>(value));
}

// What is read of a row before anything that depends on it.
struct RowNumbers {
  int64_t label = -1;
  double target = 0;
  bool counts = true;

  RowNumbers() = default;

  template <typename Loss>
  __device__ __forceinline__ static RowNumbers read(const RowArguments& a, int64_t row) {
    RowNumbers numbers;
    if (a.mask) numbers.counts = a.mask[a.mask_strides.start(row, a.inner)];
    if constexpr (Loss::labelled) numbers.label = read_label(a, row);
    if constexpr (Loss::targeted)
      numbers.target =
          read_number(a.targets, a.targets_dtype, a.target_strides.start(row, a.inner));
    return numbers;
  }
};

// Whether a row counts, and the facts of one that does.
template <typename Loss, typename Stored, typename Real>
struct KnownRow {
  RowFacts<Real> facts;
  bool counts = true;
  bool known = true;  // whether its label is the number of a class

  KnownRow() = default;

  __device__ __forceinline__ KnownRow(const RowArguments& a, const Loss& loss,
                                      const RowNumbers& numbers)
      : counts(numbers.counts) {
    facts.length = a.length;
    if constexpr (Loss::shares) facts.even = Real(1) / static_cast<Real>(a.length);
    if constexpr (Loss::labelled) {
      facts.label = numbers.label;
      counts = counts && !loss.ignores(facts.label);
      known = !counts || (facts.label >= 0 && facts.label < a.length);
      if (!counts || !known) {
        facts.label = -1;
      } else if (a.weight) {
        facts.weight = static_cast<Real>(widen(static_cast<const Stored*>(a.weight)[facts.label]));
      }
    }
    if constexpr (Loss::targeted) facts.target = static_cast<Real>(numbers.target);
  }

  // What another lane of the warp knows of its row, of fewer than 2^31 classes.
  __device__ __forceinline__ KnownRow of_lane(int lane) const {
    const auto told = [lane](auto mine) { return __shfl_sync(~0u, mine, lane); };
    KnownRow other = *this;
    const int flags = told(int{counts} | int{known} << 1);
    other.counts = flags & 1;
    other.known = flags >> 1;
    if constexpr (Loss::labelled) {
      other.facts.label = told(static_cast<int>(facts.label));
      other.facts.weight = told(facts.weight);
      other.facts.picked = told(facts.picked);
    }
    if constexpr (Loss::targeted) other.facts.target = told(facts.target);
    return other;
  }

  // Whether its loss and gradients are computed; if not, they are `nothing`.
  __device__ __forceinline__ bool is_normal() const { return counts && known; }
  __device__ __forceinline__ Real nothing() const {
    return counts ? static_cast<Real>(NAN) : Real(0);
  }

  // What it counts in a mean. A loss whose label is no class is NaN, and so are all gradients of a
  // mean with it.
  __device__ __forceinline__ double share() const {
    if (!counts) return 0;
    if (!known) return NAN;
    return Loss::mean_of_weights ? static_cast<double>(facts.weight) : 1.0;
  }
};

}  // namespace losscli::cuda
