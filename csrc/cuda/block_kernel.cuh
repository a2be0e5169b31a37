// A pass over few elements by one block, a pack a thread, all of them aligned and the target flat
// or a row of several packs that repeats. Such a launch is over before a larger kernel's code and
// arguments have come from memory: both are as short as will do.
#pragma once

#include "worker.cuh"

namespace losscli::cuda {

struct FewArguments {
  const void* input;
  const void* target;
  void* value;
  void* grad_input;
  void* grad_target;
  const void* grad_output;
  double scale;
  unsigned size;
  unsigned period;          // packs after which the target repeats
  unsigned period_inverse;  // a little more than 2^32 over it, to divide by; 0 where it does not
  bool skip_unit_gradient;

  FewArguments(const LossArguments& arguments, int64_t pack)
      : input(arguments.input.data),
        target(arguments.target.data),
        value(arguments.value),
        grad_input(arguments.grad_input),
        grad_target(arguments.grad_target),
        grad_output(arguments.grad_output.data),
        scale(arguments.scale),
        size(static_cast<unsigned>(arguments.size)),
        period(static_cast<unsigned>(arguments.target.period / pack)),
        period_inverse(0),
        skip_unit_gradient(arguments.skip_unit_gradient) {
    if (arguments.target.period < arguments.size)
      period_inverse = static_cast<unsigned>((int64_t{1} << 32) / period + 1);
  }
};

// The threads of a block that takes a pack each.
template <typename Stored>
constexpr int kFewThreads = kFewElements / Pack<Stored>::kCount;

template <typename Loss, typename Stored, typename Pass>
__global__ void __launch_bounds__(kFewThreads<Stored>)
    loss_block_kernel(const Loss loss, const FewArguments arguments) {
  using P = Pack<Stored>;
  RealOf<Stored> scale;
  if (!find_scale<Stored, Pass>(arguments, arguments.grad_output, scale)) return;
  const Worker<Loss, Stored, Pass> worker(loss, arguments, scale);
  const auto* inputs = static_cast<const P*>(arguments.input);
  const auto* targets = static_cast<const P*>(arguments.target);
  const unsigned i = threadIdx.x, packs = arguments.size / P::kCount;
  RealOf<Stored> sum = 0;
  if (i < packs)
    worker.pack(inputs[i], targets[i - __umulhi(i, arguments.period_inverse) * arguments.period],
                P(), i * P::kCount, sum);
  // What does not fill a pack, which a row does.
  const unsigned last = packs * P::kCount + i;
  if (last < arguments.size)
    worker.single(static_cast<const Stored*>(arguments.input)[last],
                  static_cast<const Stored*>(arguments.target)[last], Stored(), last, sum);
  if constexpr (Pass::sum) {
    __shared__ double scratch[kWarp];
    const double total = block_sum<kFewThreads<Stored>>(sum, scratch);
    if (i == 0) put_total<Stored>(arguments, total);
  }
}

}  // namespace losscli::cuda
