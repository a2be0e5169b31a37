// What a pass produces, and one thread's part of it.
#pragma once

#include "reduce.cuh"

namespace losscli::cuda {

// How the operands lie.
enum class Walk {
  flat,     // all contiguous and aligned: packs by their number
  rows,     // the input so, the target one row that repeats
  general,  // any: an operand's place is looked up
};

// What a pass produces, known when it is compiled.
template <bool sum_, bool value_, bool gradient_, bool grad_output_, Walk walk_>
struct Pass {
  static constexpr bool sum = sum_;                  // the loss as one scaled sum
  static constexpr bool value = value_;              // the loss of each element
  static constexpr bool gradient = gradient_;        // of either operand, of both
  static constexpr bool grad_output = grad_output_;  // multiplied by a tensor, not by one number
  static constexpr Walk walk = walk_;

  static constexpr bool writes = value || gradient;

  // In `bytes` an element.
  static constexpr Cuts cuts(size_t bytes) {
    if (!sum || walk == Walk::general) return kPlain;
    if (walk == Walk::flat) return !writes ? kReadFlat : bytes == 2 ? kWriteFlat16 : kWriteFlat;
    if (bytes == 2) return writes ? kWriteRows16 : kReadRows16;
    return writes ? kWriteRows : kReadRows;
  }
};

// A cut, known when a kernel is compiled; cuts that differ in the number of blocks share the
// kernel.
template <int threads_, int loads_, int resident_, bool past_first_level_, bool row_ahead_>
struct Shape {
  static constexpr int threads = threads_;
  static constexpr int loads = loads_;
  static constexpr int resident = resident_;
  static constexpr bool past_first_level = past_first_level_;
  static constexpr bool row_ahead = row_ahead_;
};

// One thread's work on one pack: reads nothing, adds to `sum`, writes where results are wanted.
template <typename Loss, typename Stored, typename Pass>
struct Worker {
  using Real = RealOf<Stored>;

  const Loss& loss;
  Real scale;
  Stored* value;
  Stored* grad_input;
  Stored* grad_target;

  template <typename Arguments>
  __device__ Worker(const Loss& loss, const Arguments& arguments, Real scale)
      : loss(loss),
        scale(scale),
        value(static_cast<Stored*>(arguments.value)),
        grad_input(static_cast<Stored*>(arguments.grad_input)),
        grad_target(static_cast<Stored*>(arguments.grad_target)) {}

  // The pointer, which the compiler is not to remember: it would write the code of all that follows
  // once for null and once not, for each of the unrolled packs.
  static __device__ __forceinline__ Stored* wanted(Stored* gradient) {
    asm volatile("" : "+l"(gradient));
    return gradient;
  }

  __device__ __forceinline__ void element(Stored input, Stored target, Stored grad_output,
                                          Real& sum, Stored& value_out, Stored& input_out,
                                          Stored& target_out) const {
    const Real x = widen(input), y = widen(target);
    if constexpr (Pass::sum) sum += loss.value(x, y);
    if constexpr (Pass::value) narrow(loss.value(x, y), value_out);
    if constexpr (Pass::gradient) {
      const Real incoming = Pass::grad_output ? scale * widen(grad_output) : scale;
      const auto gradient = loss.gradient(x, y, incoming);
      narrow(gradient.input, input_out);
      narrow(gradient.target, target_out);
    }
  }

  // The pack from element `i` on.
  template <typename P>
  __device__ __forceinline__ void pack(const P& input, const P& target, const P& grad_output,
                                       int64_t i, Real& sum) const {
    P value_out, input_out, target_out;
#pragma unroll
    for (int k = 0; k < P::kCount; ++k)
      element(input.values[k], target.values[k], grad_output.values[k], sum, value_out.values[k],
              input_out.values[k], target_out.values[k]);
    if constexpr (Pass::value) *reinterpret_cast<P*>(value + i) = value_out;
    if constexpr (Pass::gradient) {
      if (Stored* out = wanted(grad_input)) *reinterpret_cast<P*>(out + i) = input_out;
      if (Stored* out = wanted(grad_target)) *reinterpret_cast<P*>(out + i) = target_out;
    }
  }
};

// What the gradients are multiplied by, but for a tensor of incoming gradients; false where there
// is nothing to do because the gradients are right already.
template <typename Stored, typename Pass, typename Arguments>
__device__ __forceinline__ bool find_scale(const Arguments& arguments, const void* grad_output,
                                           RealOf<Stored>& scale) {
  double factor = arguments.scale;
  if (Pass::gradient && !Pass::grad_output && grad_output) {
    const double incoming = widen(*static_cast<const Stored*>(grad_output));
    if (arguments.skip_unit_gradient && incoming == 1) return false;
    factor *= incoming;
  }
  scale = static_cast<RealOf<Stored>>(factor);
  return true;
}

template <typename Stored, typename Arguments>
__device__ __forceinline__ void put_total(const Arguments& arguments, double total) {
  narrow(static_cast<RealOf<Stored>>(total * arguments.scale),
         *static_cast<Stored*>(arguments.value));
}

// The blocks of a launch that take tiles: all, or all but the first, which collects their sums.
struct Blocks {
  unsigned index;  // of this one
  unsigned count;
};

// Finds this block among them; false where it has collected instead, and all is done.
template <typename Stored, typename Pass, typename Shape>
__device__ __forceinline__ bool find_block(const LossArguments& arguments, const GridSum& memory,
                                           Blocks& blocks) {
  blocks = {blockIdx.x, gridDim.x};
  if constexpr (Pass::sum) {
    if (memory.ending == Ending::posted) {
      if (blockIdx.x == 0) {
        collect_posted<Shape::threads>(memory,
                                       [&](double total) { put_total<Stored>(arguments, total); });
        return false;
      }
      --blocks.index, --blocks.count;
    }
  }
  return true;
}

template <typename Stored, typename Pass, typename Shape>
__device__ __forceinline__ void finish(const LossArguments& arguments, const GridSum& memory,
                                       double sum) {
  if constexpr (Pass::sum)
    grid_sum<Shape::threads>(sum, memory,
                             [&](double total) { put_total<Stored>(arguments, total); });
}

}  // namespace losscli::cuda
