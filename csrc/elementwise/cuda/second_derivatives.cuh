// The derivative of the gradients, an element a thread: rare, so kept simple.
#pragma once

#include "launch.h"
#include "memory.cuh"

namespace losscli::cuda {

constexpr int kDoubleBackwardThreads = 256;

template <typename Loss, typename Real>
__global__ void __launch_bounds__(kDoubleBackwardThreads)
    double_backward_kernel(const Loss loss, const DoubleBackwardArguments arguments) {
  const int64_t i = int64_t{blockIdx.x} * kDoubleBackwardThreads + threadIdx.x;
  if (i >= arguments.size) return;
  const auto read = [&](const void* data) { return static_cast<const Real*>(data)[i]; };
  const Real x = read(arguments.input), y = read(arguments.target);
  const Real toward_x = read(arguments.grad_grad_input),
             toward_y = read(arguments.grad_grad_target);
  const Real scale = static_cast<Real>(arguments.scale);
  const auto gradient = loss.gradient(x, y, scale);
  const auto hessian = loss.hessian(x, y);
  const Real factor = scale * read(arguments.grad_output.data);
  static_cast<Real*>(arguments.grad_grad_output)[i] =
      toward_x * gradient.input + toward_y * gradient.target;
  static_cast<Real*>(arguments.grad_input)[i] =
      factor * (toward_x * hessian.input_input + toward_y * hessian.input_target);
  static_cast<Real*>(arguments.grad_target)[i] =
      factor * (toward_x * hessian.input_target + toward_y * hessian.target_target);
}

template <template <typename> class Loss, typename Real>
void launch_double_backward(const DoubleBackwardArguments& arguments,
                            const LaunchContext& context) {
  const int64_t blocks = divide_up(arguments.size, kDoubleBackwardThreads);
  double_backward_kernel<Loss<Real>, Real>
      <<<static_cast<unsigned>(blocks), kDoubleBackwardThreads, 0,
         static_cast<cudaStream_t>(context.stream)>>>(Loss<Real>(arguments.parameters), arguments);
  check_launch("double_backward_kernel", blocks, kDoubleBackwardThreads);
}

}  // namespace losscli::cuda
