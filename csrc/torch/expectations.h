// Leases of expectations: which call uses which one, from its forward to its backward.
#pragma once

#include "core/expectation.h"
#include "torch/call.h"

namespace losscli {

// An expectation that belongs to one call until the lease ends. Calls of one loss with the same
// reduction, dtype and site (a module's own, or that of the functions) on one stream take the
// expectations of that group in a fixed order: the first call that waits for its backward has the
// first, the second the second. So the heads of a model, called in the same order in each step,
// each meet the number that they met before.
class ExpectationLease {
 public:
  ExpectationLease() = default;
  ExpectationLease(const Call& call, at::ScalarType type, const at::Device& device, void* stream,
                   bool captured);
  ExpectationLease(ExpectationLease&& other) noexcept { *this = std::move(other); }
  ExpectationLease& operator=(ExpectationLease&& other) noexcept;
  ~ExpectationLease() { end(); }

  // Null where there is none to be had: then nothing is written ahead.
  Expectation* get() const { return expectation_; }
  // Whether the device's guesses were found to fail: gradients are not to be written ahead.
  bool is_doubted() const { return doubted_ && *doubted_; }
  void end();

 private:
  Expectation* expectation_ = nullptr;
  const volatile int32_t* doubted_ = nullptr;
  void* group_ = nullptr;  // null where nothing is to be given back
  size_t place_ = 0;
};

}  // namespace losscli
