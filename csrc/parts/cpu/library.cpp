// Rows whose classes are spread over parts, on the CPU: what joins a row is computed in double,
// gradients in double unless nothing multiplies the logits, for a product loses digits of them.
#include <algorithm>
#include <type_traits>

#include "core/cpu/parallel.h"
#include "elementwise/cpu/convert.h"
#include "parts/gradient.h"
#include "parts/join.h"

namespace losscli::cpu {
namespace {

template <typename Run>
Status each_row(int64_t rows, const LaunchContext& context, bool wide, const Run& run) {
  return guarded([&] {
    parallel(context, rows, [&](int64_t row) {
      if (wide)
        run(row, double());
      else
        run(row, float());
    });
  });
}

Status join_all(const JoinArguments& a, const LaunchContext& context) {
  return each_row(a.rows, context, a.wide,
                  [&](int64_t row, auto number) { join<double, decltype(number)>(a, row); });
}

Status join_all_divergences(const JoinArguments& a, const LaunchContext& context) {
  return each_row(a.rows, context, a.wide, [&](int64_t row, auto number) {
    join_divergences<double, decltype(number)>(a, row);
  });
}

template <typename Stored, typename Real, typename Formula>
void write_row(const PartGradientArguments& a, int64_t row) {
  constexpr int kOperands = Formula::kOperands;
  const Formula formula(a, row, [&](int output) {
    return read_number(a.incoming, a.incoming_dtype,
                       row * a.incoming_stride + output * a.incoming_output_stride);
  });
  const Stored* from[kOperands];
  Stored* to[kOperands];
  for (int k = 0; k < kOperands; ++k) {
    from[k] = static_cast<const Stored*>(a.logits[k]) + row * a.row_strides[k];
    to[k] = a.gradients[k] ? static_cast<Stored*>(a.gradients[k]) + row * a.width : nullptr;
    if (!formula.counts && to[k]) std::fill_n(to[k], a.width, Stored{});
  }
  if (!formula.counts) return;
  const Real inverse = static_cast<Real>(a.settings.inverse_divisor());
  const auto power = [inverse](Real below) LOSSCLI_LAMBDA { return exponential(-below * inverse); };
  constexpr int kRun = 64;
  for (int64_t first = 0; first < a.width; first += kRun) {
    const int64_t count = std::min<int64_t>(kRun, a.width - first);
    Real held[kOperands][kRun] = {}, weights[kRun] = {};
    for (int64_t i = 0; i < count; ++i) weights[i] = formula.weight_of(first + i);
    for (int k = 0; k < kOperands; ++k)
      for (int64_t i = 0; i < count; ++i) held[k][i] = to_value<Real>(from[k][first + i]);
    const int64_t own = formula.place - first;
    for (int i = 0; i < kRun; ++i) {
      Real x[kOperands], out[kOperands];
      for (int k = 0; k < kOperands; ++k) x[k] = held[k][i];
      formula.of_class(weights[i], i == own, x, power, out);
      for (int k = 0; k < kOperands; ++k) held[k][i] = out[k];
    }
    for (int k = 0; k < kOperands; ++k)
      for (int64_t i = 0; to[k] && i < count; ++i) to[k][first + i] = from_real<Stored>(held[k][i]);
  }
}

template <template <typename, typename> class Formula, bool narrow = false>
Status write_all(const PartGradientArguments& a, const LaunchContext& context) {
  return guarded([&] {
    with_floating_type(a.dtype, [&](auto stored) {
      using Stored = decltype(stored);
      using Number = RealOf<Stored>;
      using Real = std::conditional_t<narrow, Number, double>;
      parallel(context, a.rows,
               [&](int64_t row) { write_row<Stored, Real, Formula<Real, Number>>(a, row); });
    });
  });
}

template <typename Real, typename Number>
using Plain = PartGradient<Real, Number, true, false>;
template <typename Real, typename Number>
using General = PartGradient<Real, Number, false, false>;
template <typename Real, typename Number>
using Capped = PartGradient<Real, Number, false, true>;

Status write_gradient(const PartGradientArguments& a, const LaunchContext& context) {
  if (a.settings.softcap != 0) return write_all<Capped>(a, context);
  const bool plain = is_plain(a.settings);
  if (a.settings.divisor() == 1)
    return plain ? write_all<Plain, true>(a, context) : write_all<General, true>(a, context);
  return plain ? write_all<Plain>(a, context) : write_all<General>(a, context);
}

const PartKernels kernels{kInterface, join_all, join_all_divergences, write_gradient,
                          write_all<DivergenceGradient>};

}  // namespace
}  // namespace losscli::cpu

LOSSCLI_EXPORT const losscli::PartKernels* losscli_part_kernels() { return &losscli::cpu::kernels; }
