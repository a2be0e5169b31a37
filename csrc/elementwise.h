// The torch-free interface between the binding and the kernels of a device: plain pointers, sizes
// and codes. An iteration space of `size` elements is walked in memory order; outputs of full size
// are contiguous in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "losses.h"

namespace losscli {

constexpr int kMaxParameters = 4;

enum class DType : int { float32, float64, float16, bfloat16 };

// How a sum over everything is finished, once each block of the work has its own.
enum class Strategy : int {
  single_pass,  // in the same pass, in an order that does not change from run to run
  atomic,       // each block adds to one number, in the order in which they arrive
  two_pass,     // a second pass adds all the blocks' sums
  tree,         // further passes add a group of sums each, until one is left
  torch_sum,    // the caller does: `value` takes the blocks' sums, in double and not scaled
};

// The type computed with, for a type in memory: float, but for double.
template <typename Stored>
using RealOf = std::conditional_t<std::is_same_v<Stored, double>, double, float>;

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Element i of the iteration space reads data[(i / inner) % period]: with period = size and
// inner = 1 the operand is flat, with inner = 1 it repeats over rows, with period = size / inner
// over columns, with period = 1 it is a scalar.
struct Operand {
  const void* data = nullptr;
  int64_t inner = 1;
  int64_t period = 1;

  LOSSCLI_HOST_DEVICE bool flat(int64_t size) const { return inner == 1 && period == size; }
};

// Computes the loss, or the gradients that belong to it, or both in one pass.
struct LossArguments {
  LossId loss;
  DType dtype;  // of every tensor here
  double parameters[kMaxParameters];
  int64_t size;
  Operand input;
  Operand target;
  bool reduce;                                // whether `value` is one element: scale * sum
  Strategy strategy = Strategy::single_pass;  // of that sum
  double scale;                               // of the reduced value and of the gradients
  void* value = nullptr;                      // the loss, or null
  void* grad_input = nullptr;                 // of full size, or null
  void* grad_target = nullptr;                // of full size, or null
  Operand grad_output;                        // multiplies the gradients; null data stands for 1
  bool skip_unit_gradient = false;  // leave the gradients alone where the scalar grad_output is 1
};

// Sums the gradient of a broadcast operand over the elements that share it: element k of `gradient`
// is the sum of scale * grad_output[i] * d loss[i] over all i with (i / inner) % period == k.
struct SharedGradientArguments {
  LossId loss;
  DType dtype;
  double parameters[kMaxParameters];
  int64_t size;
  Operand input;
  Operand target;
  Operand grad_output;
  double scale;
  bool for_target;  // which operand is shared
  void* gradient;   // as many elements as that operand's period
};

// The derivative of the gradients: all operands and outputs flat.
struct DoubleBackwardArguments {
  LossId loss;
  DType dtype;
  double parameters[kMaxParameters];
  int64_t size;
  const void* input;
  const void* target;
  const void* grad_grad_input;
  const void* grad_grad_target;
  Operand grad_output;
  double scale;
  void* grad_grad_output;  // of full size
  void* grad_input;        // of full size
  void* grad_target;       // of full size
};

// What a launch needs of its surroundings.
struct LaunchContext {
  void* stream = nullptr;     // CUDA: the cudaStream_t
  void* workspace = nullptr;  // as many bytes as the engine's *_workspace says
  // CPU: runs body(context, first, last) over [0, count) on the caller's threads.
  void (*parallel)(int64_t count, void (*body)(void*, int64_t, int64_t), void* context) = nullptr;
};

// The entry points of one device. Each throws std::runtime_error where a launch fails.
struct Engine {
  // How many sums Strategy::torch_sum leaves; `value` need not be there yet.
  int64_t (*block_count)(const LossArguments&);
  size_t (*loss_workspace)(const LossArguments&);
  void (*loss)(const LossArguments&, const LaunchContext&);
  size_t (*shared_gradient_workspace)(const SharedGradientArguments&);
  void (*shared_gradient)(const SharedGradientArguments&, const LaunchContext&);
  void (*double_backward)(const DoubleBackwardArguments&, const LaunchContext&);
};

}  // namespace losscli
