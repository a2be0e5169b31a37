// One thread's part of a pass over operands that lie in packs, all of the result's dtype.
#pragma once

#include "core/cuda/memory.cuh"
#include "core/operand.h"
#include "elementwise/cuda/incoming.cuh"
#include "elementwise/cuda/pass.h"
#include "reduce/cuda/grid_sum.cuh"

namespace losscli::cuda {

// A pointer that the compiler is not to remember: it would write the code of all that follows once
// for null and once not, for each of the unrolled packs.
template <typename Stored>
__device__ __forceinline__ Stored* wanted(Stored* gradient) {
  asm volatile("" : "+l"(gradient));
  return gradient;
}

// Works on one pack: reads nothing, adds to `sum`, writes where results are wanted.
template <typename Loss, typename Stored, typename Pass>
struct Worker {
  using Real = RealOf<Stored>;
  static constexpr int kOperands = Loss::signature.operands;

  const Loss& loss;
  void* value;
  void* const (&gradients)[kOperands];

  // The pack from element `i` on.
  template <typename P>
  __device__ __forceinline__ void pack(const P (&operands)[kOperands], const P& grad_output,
                                       const Factor<Real>& factor, int64_t i,
                                       TileSum<Real>& sum) const {
    if constexpr (Pass::gradient && is_costly<Loss>) {
      // In training the prediction's gradient is wanted, and no other.
      void* others = nullptr;
#pragma unroll
      for (int n = 1; n < kOperands; ++n) others = gradients[n] ? gradients[n] : others;
      if (!wanted(others)) return pack<1>(operands, grad_output, factor, i, sum);
    }
    pack<kOperands>(operands, grad_output, factor, i, sum);
  }

 private:
  // With the gradients of the first operands, so many.
  template <int differentiated, typename P>
  __device__ __forceinline__ void pack(const P (&operands)[kOperands], const P& grad_output,
                                       const Factor<Real>& factor, int64_t i,
                                       TileSum<Real>& sum) const {
    P value_out, gradients_out[differentiated];
#pragma unroll
    for (int k = 0; k < P::kCount; ++k) {
      Real x[kOperands];
#pragma unroll
      for (int n = 0; n < kOperands; ++n) x[n] = widen(operands[n].values[k]);
      if constexpr (Pass::sum) sum.add(loss.value(x));
      if constexpr (Pass::value) narrow(loss.value(x), value_out.values[k]);
      if constexpr (Pass::gradient) {
        const Real incoming =
            Pass::incoming_tensor ? factor.value * widen(grad_output.values[k]) : factor.value;
        Real gradient[kOperands];
        loss.gradient(x, incoming, gradient);
#pragma unroll
        for (int n = 0; n < differentiated; ++n) narrow(gradient[n], gradients_out[n].values[k]);
      }
    }
    if constexpr (Pass::value) *reinterpret_cast<P*>(static_cast<Stored*>(value) + i) = value_out;
    if constexpr (Pass::gradient) {
#pragma unroll
      for (int n = 0; n < differentiated; ++n) {
        Stored* const out = wanted(static_cast<Stored*>(factor.writes ? gradients[n] : nullptr));
        if (out) *reinterpret_cast<P*>(out + i) = gradients_out[n];
      }
    }
  }
};

// The blocks of a launch that take tiles: all, or all but the first, which collects their sums.
struct Blocks {
  unsigned index;  // of this one
  unsigned count;
};

// Finds this block among them; false where it has collected instead, and all is done.
template <typename Sum, typename Pass, typename Shape, typename Finish>
__device__ __forceinline__ bool find_block(const GridSum& memory, Blocks& blocks, Finish finish) {
  blocks = {blockIdx.x, gridDim.x};
  if constexpr (Pass::sum) {
    if (memory.combine == Combine::collector) {
      if (blockIdx.x == 0) {
        collect_posted<Shape::threads, Sum>(memory, finish);
        return false;
      }
      --blocks.index, --blocks.count;
    }
  }
  return true;
}

}  // namespace losscli::cuda
