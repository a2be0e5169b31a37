// What the kernels for any layout and any dtypes have in common: their operands, and what is done
// with a thread's elements once they are in registers.
#pragma once

#include "elementwise/cuda/any_dtype.cuh"
#include "elementwise/cuda/division.h"
#include "elementwise/cuda/incoming.cuh"
#include "elementwise/cuda/worker.cuh"

namespace losscli::cuda {

// What a kernel writes and what it multiplies with.
template <int operand_count>
struct Results {
  void* value;
  void* gradients[operand_count];
  DType dtype;  // of the value
  DType gradient_dtypes[operand_count];
  bool any_gradient = false;
  Scaling scaling;
  IncomingArguments incoming;
  GridSum memory;

  Results(const ElementwiseArguments& arguments, const GridSum& memory, bool incoming_tensor)
      : value(arguments.value),
        dtype(arguments.dtype),
        scaling(arguments.scale, arguments.space.size),
        incoming(arguments, incoming_tensor),
        memory(memory) {
    for (int n = 0; n < operand_count; ++n) {
      gradients[n] = arguments.gradients[n];
      gradient_dtypes[n] = arguments.operands[n].dtype;
      any_gradient |= gradients[n] != nullptr;
    }
  }
};

// The operands that a pass reads: the loss's, then a tensor of upstream gradients.
template <typename Loss, typename Pass>
constexpr int kReads = Loss::signature.operands + Pass::incoming_tensor;

template <typename Loss, typename Pass>
const Operand& read_operand(const ElementwiseArguments& arguments, int k) {
  return k < Loss::signature.operands ? arguments.operands[k] : arguments.grad_output;
}

// What gradients are multiplied by; to be asked once a tile's loads are on their way.
template <typename Pass, typename Real, int operands>
__device__ __forceinline__ Factor<Real> factor_of(const Results<operands>& results,
                                                  const Incoming& incoming) {
  return incoming.factor<Real, Pass>(results.incoming, results.scaling.scale);
}

// Works on a thread's elements of a tile, x[k][u] those of operand k and access u: adds to `sum`,
// writes from element index(u) on, where is_there(u).
template <typename Pass, typename Loss, typename Real, int reads, int loads, int count,
          typename Index, typename IsThere>
__device__ __forceinline__ void work_on(const Loss& loss,
                                        const Results<Loss::signature.operands>& results,
                                        const Factor<Real>& factor,
                                        const Real (&x)[reads][loads][count], Index index,
                                        IsThere is_there, TileSum<Real>& sum) {
  constexpr int kOperands = Loss::signature.operands;
  const auto operands_at = [&](int u, int k, Real(&operands)[kOperands]) {
#pragma unroll
    for (int n = 0; n < kOperands; ++n) operands[n] = x[n][u][k];
  };
  if constexpr (Pass::forward) {
    // In float a pack is added up before it is asked whether it is there: once, not for each value.
    constexpr bool kByPack = sizeof(Real) == 4 && count > 1;
    Real values[loads][count];
    if (Pass::sum || results.value) {
#pragma unroll
      for (int u = 0; u < loads; ++u) {
        Real pack = 0;
#pragma unroll
        for (int k = 0; k < count; ++k) {
          Real operands[kOperands];
          operands_at(u, k, operands);
          values[u][k] = loss.value(operands);
          if constexpr (Pass::sum && kByPack) {
            pack = k == 0 ? values[u][k] : pack + values[u][k];
          } else if constexpr (Pass::sum) {
            sum.add(is_there(u) ? values[u][k] : Real(0));
          }
        }
        if constexpr (Pass::sum && kByPack) sum.add(is_there(u) ? pack : Real(0));
      }
      if constexpr (Pass::value)
        write_elements<loads, count>(results.value, results.dtype, index, is_there, values);
    }
  }
  if constexpr (Pass::gradient) {
    if (!factor.writes || !results.any_gradient) return;
    Real gradients[kOperands][loads][count];
#pragma unroll
    for (int u = 0; u < loads; ++u)
#pragma unroll
      for (int k = 0; k < count; ++k) {
        Real operands[kOperands], gradient[kOperands];
        operands_at(u, k, operands);
        Real by = factor.value;
        if constexpr (Pass::incoming_tensor) by *= x[kOperands][u][k];
        loss.gradient(operands, by, gradient);
#pragma unroll
        for (int n = 0; n < kOperands; ++n) gradients[n][u][k] = gradient[n];
      }
#pragma unroll
    for (int n = 0; n < kOperands; ++n)
      if (void* const out = wanted(results.gradients[n]))
        write_elements<loads, count>(out, results.gradient_dtypes[n], index, is_there,
                                     gradients[n]);
  }
}

template <typename Sum, typename Real, int operands>
__device__ __forceinline__ void put_total(const Results<operands>& results, const Sum& total) {
  write_number(results.value, results.dtype, static_cast<Real>(total.scaled(results.scaling)));
}

}  // namespace losscli::cuda
