// The sums of the chunks of a space, which are added in the order of the chunks: the result does
// not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "reduce/cpu/compensated.h"

namespace losscli::cpu {

class PartialSums {
 public:
  // May throw std::bad_alloc.
  explicit PartialSums(int64_t chunks) : chunks_(chunks) {
    if (chunks <= kFew) return;
    many_.reset(new Compensated[chunks]);
    sums_ = many_.get();
  }

  // Called once for each chunk, from any thread.
  void put(int64_t chunk, const Compensated& sum) { sums_[chunk] = sum; }

  // To be called once, after every put.
  Compensated total() const {
    Compensated total;
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) total.add(sums_[chunk]);
    return total;
  }

  int64_t chunks() const { return chunks_; }
  const Compensated& operator[](int64_t chunk) const { return sums_[chunk]; }

 private:
  static constexpr int64_t kFew = 16;  // sums that need no allocation

  int64_t chunks_;
  Compensated few_[kFew];
  std::unique_ptr<Compensated[]> many_;
  Compensated* sums_ = few_;
};

}  // namespace losscli::cpu
