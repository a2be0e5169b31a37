// What the torch layer asks of the elementwise kernels of one loss on one device: plain data in, a
// status out.
#pragma once

#include <cstdint>

#include "core/expectation.h"
#include "core/launch.h"
#include "core/operand.h"
#include "losses/elementwise/loss.h"

namespace losscli {

constexpr int kMostParameters = 4;

// How a sum over everything is finished, once each block of the work has its own. A loss's own
// library knows the first; the others are compiled into the library of its strategies.
enum class Strategy : int32_t {
  single_pass,  // in the same pass, in an order that does not change from run to run
  atomic,       // each block adds to one number, in the order in which they arrive
  two_pass,     // a second pass adds all the blocks' sums
  tree,         // further passes add a group of sums each, until one is left
  torch_sum,    // the caller does: `value` takes the blocks' sums, in double and not scaled
};

// Computes the loss, or the gradients that belong to it, or both in one pass.
struct ElementwiseArguments {
  Space space;
  Operand operands[kMostOperands];
  double parameters[kMostParameters] = {};
  DType dtype = DType::float32;  // to which the operands are promoted, and of `value`
  bool reduce = false;           // whether `value` is one element: scale * sum
  Strategy strategy = Strategy::single_pass;
  double scale = 1;       // of the reduced value and of the gradients
  void* value = nullptr;  // the loss, of full size or one element; null where not wanted
  // Of full size, each in its operand's dtype; null where not wanted.
  void* gradients[kMostOperands] = {};
  Operand grad_output;                 // multiplies the gradients; null data stands for 1
  Expectation* expectation = nullptr;  // on the device
  Guess guess = Guess::none;           // not none: grad_output is one number, or to come
};

// Sums the gradient of an operand over the elements that share it. The dimensions of `space` are
// those of the operand's own elements, `kept` of them, and then those that repeat it; the gradient
// is dense in the former. Each group is in the order of memory, the fastest first.
struct SharedGradientArguments {
  Space space;
  int32_t kept = 0;
  bool repeats_fastest = false;  // whether of all dimensions the fastest is one that repeats it
  Operand operands[kMostOperands];
  double parameters[kMostParameters] = {};
  DType dtype = DType::float32;
  double scale = 1;
  Operand grad_output;       // of one element or of full size; null data stands for 1
  int32_t shared = 0;        // which operand
  void* gradient = nullptr;  // in that operand's dtype
};

// The derivatives of the sum over operands k of v[k] * gradient[k], for the operands and for
// grad_output. Everything is dense and in Real (float, or double where `dtype` is float64).
struct SecondDerivativeArguments {
  int64_t size = 0;
  double parameters[kMostParameters] = {};
  DType dtype = DType::float32;  // float32 or float64
  double scale = 1;
  const void* operands[kMostOperands] = {};
  const void* vectors[kMostOperands] = {};
  const void* grad_output = nullptr;
  void* out_grad_output = nullptr;
  void* out_operands[kMostOperands] = {};
};

// The entry points of a library, which exports `losscli_kernels`.
struct Kernels {
  uint64_t interface;  // kInterface of the sources that it was compiled from
  int32_t operands;
  int32_t parameters;
  const Parameter* parameter;  // so many
  // Elements of the loss from which on it pays to write gradients ahead.
  int64_t least_ahead;
  // The number of sums that Strategy::torch_sum leaves; `value` need not be there yet.
  int64_t (*partial_sums)(const ElementwiseArguments&, const DeviceFacts&);
  Needs (*elementwise_needs)(const ElementwiseArguments&, const DeviceFacts&);
  Status (*elementwise)(const ElementwiseArguments&, const LaunchContext&);
  Needs (*shared_gradient_needs)(const SharedGradientArguments&, const DeviceFacts&);
  Status (*shared_gradient)(const SharedGradientArguments&, const LaunchContext&);
  Status (*second_derivatives)(const SecondDerivativeArguments&, const LaunchContext&);
};

}  // namespace losscli
