// The library of one loss over rows: its calls, and what it exports. Compiled for each loss with
// -DLOSSCLI_LOSS=name -DLOSSCLI_LOSS_HEADER="losses/rows/header.h".
#include LOSSCLI_LOSS_HEADER

#include "core/cpu/parallel.h"
#include "rows/cpu/panel_walker.h"
#include "rows/cpu/rooms.h"
#include "rows/cpu/walk_panels.h"
#include "rows/cpu/walk_rows.h"
#include "rows/cpu/walker.h"

namespace losscli::cpu {
namespace {

template <typename Real>
using Loss = LOSSCLI_LOSS<Real>;

// Backward where forward has written the gradients.
bool nothing_wanted(const RowArguments& arguments, const RowIncoming& incoming) {
  return !arguments.value && !(arguments.wants_gradient() && incoming.wanted());
}

template <typename Stored, typename Real>
[[maybe_unused]] void run_cross_entropy(const RowArguments& arguments,
                                        const LaunchContext& context) {
  if (const RowIncoming incoming(arguments); nothing_wanted(arguments, incoming))
    return incoming.note();
  const Call<Stored, Real> call(arguments, context);
  const Compensated sum =
      fit_panels(arguments, sizeof(Real)) ? walk_panels(call, context) : walk_rows(call, context);
  if (arguments.value && arguments.reduction != RowReduction::none)
    put<Stored>(arguments, 0, sum.total() / call.divisor);
  call.incoming.note();
}

template <template <typename> class Functor, typename Stored, typename Real>
[[maybe_unused]] void run_as(const RowArguments& arguments, const LaunchContext& context) {
  using Wide = Functor<double>;
  const RowIncoming incoming(arguments);
  if (nothing_wanted(arguments, incoming)) return incoming.note();
  const Wide wide(arguments.parameters);
  const Facts<Wide, Stored> facts(arguments, wide);
  const double count = facts.check_and_count(context);
  const double divisor = arguments.reduction == RowReduction::mean ? count : 1.0;
  const bool gradient = arguments.wants_gradient() && incoming.wanted();
  const int64_t rows = arguments.rows();
  const auto work = [&](auto& walker, int64_t first, int64_t last) {
    return walker.run(first, last, facts, incoming, divisor, gradient);
  };
  Compensated sum;
  if (PanelWalker<Functor, Stored, Real>::fits(arguments))
    sum = sum_chunks<PanelWalker<Functor, Stored, Real>>(
        context, rows, panel_rows_of_chunk(arguments), work, arguments);
  else
    sum = sum_chunks<Walker<Functor, Stored, Real>>(
        context, rows, rows_of_chunk(rows, arguments.length), work, arguments);
  if (arguments.value && arguments.reduction != RowReduction::none)
    put<Stored>(arguments, 0, sum.total() / divisor);
  incoming.note();
}

// With a temperature the rounding of a float shows in its exponential: then in double.
template <template <typename> class Functor, typename Stored>
[[maybe_unused]] void run_functor(const RowArguments& arguments, const LaunchContext& context) {
  if constexpr (std::is_same_v<Stored, float> && Functor<float>::logits)
    if (arguments.parameters[0] != 1) return run_as<Functor, Stored, double>(arguments, context);
  run_as<Functor, Stored, RealOf<Stored>>(arguments, context);
}

// Logits of cross entropy that are transformed are those of a softcap too: then in double.
template <template <typename> class Functor, typename Stored>
void run(const RowArguments& arguments, const LaunchContext& context) {
  if constexpr (Functor<float>::is_cross_entropy) {
    if (Transform(arguments).wanted())
      run_cross_entropy<Stored, double>(arguments, context);
    else
      run_cross_entropy<Stored, RealOf<Stored>>(arguments, context);
  } else {
    if constexpr (Functor<float>::has_usual)
      if (Functor<float>::is_usual(arguments.parameters))
        return run_functor<Functor<float>::template Usual, Stored>(arguments, context);
    run_functor<Functor, Stored>(arguments, context);
  }
}

Status run_rows(const RowArguments& arguments, const LaunchContext& context) {
  return guarded([&] {
    with_floating_type(arguments.dtype,
                       [&](auto stored) { run<Loss, decltype(stored)>(arguments, context); });
  });
}

Needs nothing(const RowArguments&, const DeviceFacts&) { return {}; }

const RowKernels kernels{kInterface,         Loss<float>::rows, Loss<float>::parameter_total,
                         Loss<float>::reads, nothing,           run_rows};

}  // namespace
}  // namespace losscli::cpu

LOSSCLI_EXPORT const losscli::RowKernels* losscli_row_kernels() { return &losscli::cpu::kernels; }
