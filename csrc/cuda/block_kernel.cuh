// A pass over few elements by one block, however they lie. Such a launch is over before a larger
// kernel's code and arguments have come from memory: both are as short as will do.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

// The element of place i is (i / inner) % period, and a quotient the upper half of a product with
// 2^32 over the divisor, rounded up: exact below 2^16.
struct FewOperand {
  const void* data;
  unsigned inner;   // 2^32 / inner; 0 where nothing is divided
  unsigned period;  // 2^32 / period; 0 where nothing is repeated
  unsigned repeat;  // period

  FewOperand(const Operand& operand, int64_t size) : data(operand.data), inner(0), period(0) {
    const auto over = [](int64_t divisor) {
      return static_cast<unsigned>((int64_t{1} << 32) / divisor + 1);
    };
    repeat = static_cast<unsigned>(operand.period);
    if (operand.period == 1) {
      inner = over(kBlockElements);  // all of them 0
    } else {
      if (operand.inner > 1) inner = over(operand.inner);
      if (operand.inner * operand.period < size) period = over(operand.period);
    }
  }

  template <typename Stored>
  __device__ __forceinline__ Stored at(unsigned i) const {
    if (inner) i = __umulhi(i, inner);
    return static_cast<const Stored*>(data)[i - __umulhi(i, period) * repeat];
  }
};

struct FewArguments {
  FewOperand input;
  FewOperand target;
  void* value;
  void* grad_input;
  void* grad_target;
  const void* grad_output;
  double scale;
  unsigned size;
  bool skip_unit_gradient;

  explicit FewArguments(const LossArguments& arguments)
      : input(arguments.input, arguments.size),
        target(arguments.target, arguments.size),
        value(arguments.value),
        grad_input(arguments.grad_input),
        grad_target(arguments.grad_target),
        grad_output(arguments.grad_output.data),
        scale(arguments.scale),
        size(static_cast<unsigned>(arguments.size)),
        skip_unit_gradient(arguments.skip_unit_gradient) {}
};

template <typename Loss, typename Stored, typename Pass>
__global__ void __launch_bounds__(kBlockThreads)
    loss_block_kernel(const Loss loss, const FewArguments arguments) {
  constexpr int kEach = kBlockElements / kBlockThreads;
  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, arguments.grad_output, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);
  // What lies beyond the end is the last element once more, whose loss is not added: a branch for
  // each would be most of the code.
  Stored input[kEach], target[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = min(u * kBlockThreads + threadIdx.x, arguments.size - 1);
    input[u] = arguments.input.at<Stored>(i);
    target[u] = arguments.target.at<Stored>(i);
  }
  RealOf<Stored> sum = 0;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const unsigned i = u * kBlockThreads + threadIdx.x;
    RealOf<Stored> value = 0;
    worker.single(input[u], target[u], Stored(), min(i, arguments.size - 1), value);
    sum += i < arguments.size ? value : 0;
  }
  if constexpr (Pass::sum) {
    __shared__ double scratch[kWarp];
    const double total = block_sum<kBlockThreads>(sum, scratch);
    if (threadIdx.x == 0) put_total<Stored>(arguments, total);
  }
}

}  // namespace losscli::cuda
