// Other ways to make one sum of the chunks' sums, to be compared with adding them in order.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>

#include "core/cpu/parallel.h"
#include "core/operand.h"
#include "elementwise/kernels.h"
#include "reduce/cpu/partial_sums.h"

namespace losscli::cpu {

class StrategySums {
 public:
  StrategySums(Strategy strategy, int64_t chunks)
      : strategy_(strategy), chunks_(strategy == Strategy::atomic ? 0 : chunks) {}

  // Called once for each chunk, from any thread.
  void put(int64_t chunk, const Compensated& sum) {
    if (strategy_ != Strategy::atomic) return chunks_.put(chunk, sum);
    const double value = sum.total();
    double before = arrived_.load(std::memory_order_relaxed);
    while (!arrived_.compare_exchange_weak(before, before + value, std::memory_order_relaxed)) {
    }
  }

  // To be called once, after every put. May throw std::bad_alloc.
  Compensated total(const LaunchContext& context) const {
    switch (strategy_) {
      case Strategy::atomic:
        return {arrived_.load(std::memory_order_relaxed), 0};
      case Strategy::two_pass:
        return two_pass();
      case Strategy::tree:
        return tree(context);
      default:
        return chunks_.total();
    }
  }

  // Leaves the chunks' sums to the caller.
  void leave(double* sums) const {
    for (int64_t chunk = 0; chunk < chunks_.chunks(); ++chunk) *sums++ = chunks_[chunk].total();
  }

 private:
  static constexpr int64_t kGroup = 512;   // sums that a level of the tree makes one of
  static constexpr int64_t kColumns = 64;  // sums that the second pass adds side by side

  // On one thread: 2^30 elements leave 16,384 sums, which take it a few us, and waking the others
  // takes longer.
  Compensated two_pass() const {
    Compensated columns[kColumns];
    for (int64_t chunk = 0; chunk < chunks_.chunks(); ++chunk)
      columns[chunk % kColumns].add(chunks_[chunk]);
    for (int64_t column = 1; column < kColumns; ++column) columns[0].add(columns[column]);
    return columns[0];
  }

  Compensated tree(const LaunchContext& context) const {
    std::unique_ptr<Compensated[]> level;
    const Compensated* below = chunks_.chunks() > 0 ? &chunks_[0] : nullptr;
    int64_t count = chunks_.chunks();
    while (count > 1) {
      const int64_t groups = divide_up(count, kGroup);
      std::unique_ptr<Compensated[]> above(new Compensated[groups]);
      parallel(context, groups, [&](int64_t group) {
        const int64_t last = std::min((group + 1) * kGroup, count);
        for (int64_t i = group * kGroup; i < last; ++i) above[group].add(below[i]);
      });
      level = std::move(above);
      below = level.get();
      count = groups;
    }
    return count == 1 ? *below : Compensated();
  }

  Strategy strategy_;
  PartialSums chunks_;
  std::atomic<double> arrived_{0};
};

}  // namespace losscli::cpu
