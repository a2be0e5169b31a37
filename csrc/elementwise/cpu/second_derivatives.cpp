// The derivatives of gradients, element by element over dense arrays.
#include <algorithm>

#include "core/cpu/parallel.h"
#include "elementwise/cpu/entry.h"
#include "elementwise/cpu/guarded.h"
#include "elementwise/cpu/loss.h"
#include "elementwise/cpu/tile.h"

namespace losscli::cpu {
namespace {

constexpr int64_t kChunk = 16 * kTile;

// Arrays of one tile; what is missing is read as zeros, what is not wanted goes nowhere.
template <typename Real>
struct Arrays {
  const Real* operands[kOperands];
  const Real* vectors[kOperands];
  const Real* grad_output;
  Real* out_grad_output;
  Real* out_operands[kOperands];
};

template <typename Real>
void run_tile(const Loss<Real> loss, const Arrays<Real>& arrays, Real scale, int64_t count) {
  const Arrays<Real> at = arrays;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
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
  parallel_ranges(context, divide_up(arguments.size, kChunk),
                  [&](int64_t first_chunk, int64_t last_chunk) {
                    const Loss<Real> loss(arguments.parameters);
                    alignas(64) const Real zeros[kTile] = {};
                    alignas(64) Real ignored[kOperands + 1][kTile];
                    const int64_t end = std::min(last_chunk * kChunk, arguments.size);
                    for (int64_t first = first_chunk * kChunk; first < end; first += kTile) {
                      const auto in = [&](const void* data) {
                        return data ? static_cast<const Real*>(data) + first : zeros;
                      };
                      const auto out = [&](void* data, int i) {
                        return data ? static_cast<Real*>(data) + first : ignored[i];
                      };
                      Arrays<Real> arrays;
                      for (int k = 0; k < kOperands; ++k) {
                        arrays.operands[k] = in(arguments.operands[k]);
                        arrays.vectors[k] = in(arguments.vectors[k]);
                        arrays.out_operands[k] = out(arguments.out_operands[k], k);
                      }
                      arrays.grad_output = in(arguments.grad_output);
                      arrays.out_grad_output = out(arguments.out_grad_output, kOperands);
                      run_tile<Real>(loss, arrays, static_cast<Real>(arguments.scale),
                                     std::min(kTile, end - first));
                    }
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
