// The sums of the chunks, and how each strategy makes one of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>

#include "elementwise.h"
#include "lanes.h"
#include "parallel.h"

namespace losscli::cpu {

class ChunkSums {
 public:
  // `given` takes the sums where the caller wants them; null keeps them here.
  ChunkSums(Strategy strategy, int64_t chunks, double* given)
      : strategy_(strategy), chunks_(chunks), sums_(given ? given : few_) {
    if (given || strategy == Strategy::atomic || chunks <= kFew) return;
    many_.reset(new double[chunks]);
    sums_ = many_.get();
  }

  // Called once for each chunk, from any thread.
  void put(int64_t chunk, double sum) {
    if (strategy_ == Strategy::atomic) {
      double before = arrived_.load(std::memory_order_relaxed);
      while (!arrived_.compare_exchange_weak(before, before + sum, std::memory_order_relaxed)) {
      }
    } else {
      sums_[chunk] = sum;
    }
  }

  // To be called once, after every put.
  double total(const LaunchContext& context) {
    switch (strategy_) {
      case Strategy::atomic:
        return arrived_.load(std::memory_order_relaxed);
      case Strategy::two_pass:
        // On one thread: 2^30 elements leave 16,384 sums, which take it 2 us, and waking the others
        // takes longer.
        return lane_sum<double>(sums_, chunks_);
      case Strategy::tree:
        return tree(context);
      default:
        return in_order();
    }
  }

 private:
  static constexpr int64_t kFew = 16;     // sums that need no allocation
  static constexpr int64_t kGroup = 512;  // sums that a level of the tree makes one of

  double in_order() const {
    double total = 0;
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) total += sums_[chunk];
    return total;
  }

  double tree(const LaunchContext& context) {
    std::unique_ptr<double[]> level;
    const double* below = sums_;
    int64_t count = chunks_;
    while (count > 1) {
      const int64_t groups = divide_up(count, kGroup);
      std::unique_ptr<double[]> above(new double[groups]);
      parallel(context, groups, [&](int64_t group) {
        const int64_t first = group * kGroup;
        above[group] = lane_sum<double>(below + first, std::min(kGroup, count - first));
      });
      level = std::move(above);
      below = level.get();
      count = groups;
    }
    return count == 1 ? *below : 0.0;
  }

  Strategy strategy_;
  int64_t chunks_;
  double few_[kFew];
  std::unique_ptr<double[]> many_;
  double* sums_;
  std::atomic<double> arrived_{0};
};

}  // namespace losscli::cpu
