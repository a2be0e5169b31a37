// What a node of autograd needs to write gradients ahead: the operands as forward saw them, and the
// lease of the expectation with the place of forward's launch in the order of the device.
#pragma once

#include "torch/expectations.h"

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

// The lease of one call, and on which stream and in which capture its forward was launched.
class Turn {
 public:
  void begin(const Call& call, at::ScalarType type, const at::Device& device);

  // What forward is to write ahead with; null where it is to write nothing.
  Expectation* writes() const { return lease_.is_doubted() ? nullptr : lease_.get(); }

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
