// The derivatives of gradients, element by element over dense arrays.
#include <algorithm>

#include "core/cpu/parallel.h"
#include "elementwise/cpu/loss.h"
#include "elementwise/cpu/tile.h"

namespace losscli::cpu {
namespace {

constexpr int64_t kChunk = 16 * kTile;

// Arrays of Real.
template <typename Real>
struct Arrays {
  const Real* operands[kOperands];
  const Real* vectors[kOperands];
  const Real* grad_output;
  Real* out_grad_output;
  Real* out_operands[kOperands];

  explicit Arrays(const SecondDerivativeArguments& arguments)
      : grad_output(static_cast<const Real*>(arguments.grad_output)),
        out_grad_output(static_cast<Real*>(arguments.out_grad_output)) {
    for (int k = 0; k < kOperands; ++k) {
      operands[k] = static_cast<const Real*>(arguments.operands[k]);
      vectors[k] = static_cast<const Real*>(arguments.vectors[k]);
      out_operands[k] = static_cast<Real*>(arguments.out_operands[k]);
    }
  }
};

template <typename Real>
void run_range(const Loss<Real> loss, const Arrays<Real> at, Real scale, int64_t first,
               int64_t last) {
#pragma GCC ivdep
  for (int64_t i = first; i < last; ++i) {
    Real x[kOperands], v[kOperands], gradient[kOperands], product[kOperands];
    for (int k = 0; k < kOperands; ++k) x[k] = at.operands[k][i];
    for (int k = 0; k < kOperands; ++k) v[k] = at.vectors[k][i];
    loss.gradient(x, scale, gradient);
    loss.hessian_product(x, v, product);
    const Real factor = scale * at.grad_output[i];
    Real along = v[0] * gradient[0];
    for (int k = 1; k < kOperands; ++k) along += v[k] * gradient[k];
    at.out_grad_output[i] = along;
    for (int k = 0; k < kOperands; ++k) at.out_operands[k][i] = factor * product[k];
  }
}

template <typename Real>
void run(const SecondDerivativeArguments& arguments, const LaunchContext& context) {
  const Loss<Real> loss(arguments.parameters);
  const Arrays<Real> arrays(arguments);
  const auto scale = static_cast<Real>(arguments.scale);
  parallel_ranges(context, divide_up(arguments.size, kChunk), [&](int64_t first, int64_t last) {
    run_range<Real>(loss, arrays, scale, first * kChunk, std::min(last * kChunk, arguments.size));
  });
}

}  // namespace

Status second_derivatives(const SecondDerivativeArguments& arguments,
                          const LaunchContext& context) {
  return guarded([&] {
    arguments.dtype == DType::float64 ? run<double>(arguments, context)
                                      : run<float>(arguments, context);
  });
}

}  // namespace losscli::cpu
