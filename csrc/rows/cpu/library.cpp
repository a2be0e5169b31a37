// The library of one loss over rows: its calls, and what it exports. Compiled for each loss with
// -DLOSSCLI_LOSS=name -DLOSSCLI_LOSS_HEADER="losses/rows/header.h".
#include LOSSCLI_LOSS_HEADER

#include "core/cpu/parallel.h"
#include "rows/cpu/rooms.h"
#include "rows/cpu/walk_panels.h"
#include "rows/cpu/walk_rows.h"
#include "rows/cpu/walker.h"

namespace losscli::cpu {
namespace {

template <typename Real>
using Loss = LOSSCLI_LOSS<Real>;

template <typename Stored, typename Real>
[[maybe_unused]] void run_cross_entropy(const RowArguments& arguments,
                                        const LaunchContext& context) {
  const Call<Stored, Real> call(arguments, context);
  const Compensated sum = fit_panels(call) ? walk_panels(call, context) : walk_rows(call, context);
  if (arguments.value && arguments.reduction != RowReduction::none)
    put<Stored>(arguments, 0, sum.total() / call.divisor);
  call.incoming.note();
}

template <typename Stored, typename Real>
[[maybe_unused]] void run_as(const RowArguments& arguments, const LaunchContext& context) {
  using Wide = Loss<double>;
  const Wide wide(arguments.parameters);
  const Facts<Wide, Stored> facts(arguments, wide);
  const RowIncoming incoming(arguments);
  const double count = facts.check_and_count(context);
  const double divisor = arguments.reduction == RowReduction::mean ? count : 1.0;
  const bool gradient = arguments.wants_gradient() && incoming.wanted();
  const bool value = arguments.value != nullptr;
  const int64_t rows = arguments.rows();
  const auto work = [&](auto& walker, int64_t first, int64_t last) {
    Compensated sum;
    for (int64_t row = first; row < last; ++row) {
      double values[kMostOutputs] = {};
      if (facts.counts(row)) {
        double scales[kMostOutputs];
        for (int o = 0; o < kMostOutputs; ++o) scales[o] = incoming.of(row, o) / divisor;
        const auto& found = walker.read(row, facts.of_row(row), scales);
        std::copy_n(found.values, kMostOutputs, values);
        if (gradient) walker.write(row);
      } else if (gradient) {
        walker.write_zeros(row);
      }
      sum.add(values[0]);
      if (value && arguments.reduction == RowReduction::none)
        for (int o = 0; o < arguments.outputs; ++o)
          put<Stored>(arguments, o * rows + row, values[o]);
    }
    return sum;
  };
  Compensated sum;
  if (gradient || value)
    sum = sum_chunks<Walker<Loss, Stored, Real>>(
        context, rows, rows_of_chunk(rows, arguments.length), work, arguments);
  if (value && arguments.reduction != RowReduction::none)
    put<Stored>(arguments, 0, sum.total() / divisor);
  incoming.note();
}

// With a temperature the rounding of a float shows in its exponential, and logits that are
// transformed are those of a softcap too: then in double.
template <typename Stored>
void run(const RowArguments& arguments, const LaunchContext& context) {
  if constexpr (Loss<float>::is_cross_entropy) {
    if (Transform(arguments).wanted())
      run_cross_entropy<Stored, double>(arguments, context);
    else
      run_cross_entropy<Stored, RealOf<Stored>>(arguments, context);
  } else {
    if constexpr (std::is_same_v<Stored, float> && Loss<float>::logits)
      if (arguments.parameters[0] != 1) return run_as<Stored, double>(arguments, context);
    run_as<Stored, RealOf<Stored>>(arguments, context);
  }
}

Status run_rows(const RowArguments& arguments, const LaunchContext& context) {
  return guarded([&] {
    with_floating_type(arguments.dtype,
                       [&](auto stored) { run<decltype(stored)>(arguments, context); });
  });
}

Needs nothing(const RowArguments&, const DeviceFacts&) { return {}; }

const RowKernels kernels{kInterface,         Loss<float>::rows, Loss<float>::parameter_total,
                         Loss<float>::reads, nothing,           run_rows};

}  // namespace
}  // namespace losscli::cpu

LOSSCLI_EXPORT const losscli::RowKernels* losscli_row_kernels() { return &losscli::cpu::kernels; }
