// What a node of autograd needs to write gradients ahead: the operands as forward saw them, the
// lease of an expectation, and the place of forward's launch in the order of the device.
#pragma once

#include "core/expectation.h"
#include "torch/call.h"

namespace losscli {

// Operands in the form that forward had them in, and where their memory lay; those that are
// undefined are passed over. Assigning to `.data` changes both without autograd's knowing.
class SeenOperands {
 public:
  // Nothing is remembered of operands whose sizes are symbolic.
  void remember(TensorList operands);

  // Notes where the memory of the operands lies, and how.
  void note(TensorList operands);

  // Throws (RuntimeError) where an operand has another shape than the one that was seen.
  void check_shapes(const Definition& loss, TensorList operands) const;

  // Whether these are the ones noted, in memory too.
  bool are(TensorList operands) const;

 private:
  struct Seen {
    c10::SmallVector<int64_t, 5> sizes, strides;
    const void* data = nullptr;
    at::ScalarType type = at::ScalarType::Undefined;
  };

  c10::SmallVector<Seen, kMostOperands> seen_;
};

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

// The lease of one call, and on which stream and in which capture its forward was launched.
class Turn {
 public:
  void begin(const Call& call, at::ScalarType type, const at::Device& device);

  // What forward is to write ahead with; null where it is to write nothing. `always`: also where
  // guesses fail, and the device finds that it has nothing to write.
  Expectation* writes(bool always) const {
    return lease_.is_doubted() && !always ? nullptr : lease_.get();
  }

  // The lease, where a launch on the current stream comes after that of forward, in a graph if that
  // did; else an empty one. Either way the turn is over.
  ExpectationLease take(const at::Device& device);

  // After the launch that made gradients right with the lease that was taken.
  void gave_out(const Call& call, const ExpectationLease& lease, const at::Device& device) const;

  void end() { lease_.end(); }

 private:
  ExpectationLease lease_;
  void* stream_ = nullptr;
  uint64_t capture_ = 0;        // of forward
  uint64_t taken_capture_ = 0;  // of backward
};

}  // namespace losscli
