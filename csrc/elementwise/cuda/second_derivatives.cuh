// The derivative of the gradients, an element a thread: rare, so kept simple.
#pragma once

#include "core/cuda/launch.h"
#include "core/operand.h"
#include "elementwise/kernels.h"

namespace losscli::cuda {

constexpr int kSecondDerivativeThreads = 256;

template <typename Loss, typename Real>
__global__ void __launch_bounds__(kSecondDerivativeThreads)
    second_derivatives_kernel(const Loss loss, const SecondDerivativeArguments arguments) {
  constexpr int kOperands = Loss::signature.operands;
  const int64_t i = int64_t{blockIdx.x} * kSecondDerivativeThreads + threadIdx.x;
  if (i >= arguments.size) return;
  const auto read = [&](const void* data) { return static_cast<const Real*>(data)[i]; };
  Real x[kOperands], vector[kOperands], gradient[kOperands], product[kOperands];
#pragma unroll
  for (int n = 0; n < kOperands; ++n) {
    x[n] = read(arguments.operands[n]);
    vector[n] = arguments.vectors[n] ? read(arguments.vectors[n]) : Real(0);
  }
  const Real scale = static_cast<Real>(arguments.scale);
  const Real factor = arguments.grad_output ? scale * read(arguments.grad_output) : scale;
  loss.gradient(x, scale, gradient);
  loss.hessian_product(x, vector, product);
  Real along = 0;
#pragma unroll
  for (int n = 0; n < kOperands; ++n) {
    along += vector[n] * gradient[n];
    if (arguments.out_operands[n])
      static_cast<Real*>(arguments.out_operands[n])[i] = factor * product[n];
  }
  if (arguments.out_grad_output) static_cast<Real*>(arguments.out_grad_output)[i] = along;
}

template <typename Loss, typename Real>
Status launch_second_derivatives(const SecondDerivativeArguments& arguments,
                                 const LaunchContext& context) {
  if (arguments.size == 0) return {};
  const int64_t blocks = divide_up(arguments.size, kSecondDerivativeThreads);
  return launch("second_derivatives_kernel", second_derivatives_kernel<Loss, Real>,
                dim3(static_cast<unsigned>(blocks)), kSecondDerivativeThreads, false,
                context.stream, Loss(arguments.parameters), arguments);
}

}  // namespace losscli::cuda
