// One call: in which types it is computed, how its rows are walked, what becomes of their losses.
#include "elementwise/cpu/guarded.h"
#include "reduce/cpu/compensated.h"
#include "rows/cpu/call.h"
#include "rows/cpu/entry.h"
#include "rows/cpu/walk_rows.h"

namespace losscli::cpu {
namespace {

template <typename Stored, typename Real>
void run_as(const RowArguments& arguments, const LaunchContext& context) {
  const Call<Stored, Real> call(arguments, context);
  const Compensated sum = fit_panels(call) ? walk_panels(call, context) : walk_rows(call, context);
  if (arguments.value && arguments.reduction != RowReduction::none) {
    const double value = sum.total() / call.divisor;
    *static_cast<Stored*>(arguments.value) = from_real<Stored>(value);
  }
  call.incoming.note();
}

// Logits that are transformed are computed in double; see Transform.
template <typename Stored>
void run(const RowArguments& arguments, const LaunchContext& context) {
  if (Transform(arguments).wanted())
    run_as<Stored, double>(arguments, context);
  else
    run_as<Stored, RealOf<Stored>>(arguments, context);
}

}  // namespace

Status run_rows(const RowArguments& arguments, const LaunchContext& context) {
  return guarded([&] {
    with_floating_type(arguments.dtype,
                       [&](auto stored) { run<decltype(stored)>(arguments, context); });
  });
}

}  // namespace losscli::cpu
