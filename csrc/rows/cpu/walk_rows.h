// The ways to walk the rows of a call; each leaves the sum of the rows' losses.
#pragma once

#include "core/launch.h"
#include "reduce/cpu/compensated.h"
#include "rows/cpu/call.h"

namespace losscli::cpu {

// One row after the other, or where there are few a piece of each on every thread.
template <typename Stored, typename Real>
Compensated walk_rows(const Call<Stored, Real>& call, const LaunchContext& context);

// Panels of rows, side by side in vectors.
template <typename Stored, typename Real>
Compensated walk_panels(const Call<Stored, Real>& call, const LaunchContext& context);

// Whether panels are faster, or rows cannot be walked one by one without reading every line of
// memory many times.
template <typename Stored, typename Real>
bool fit_panels(const Call<Stored, Real>& call);

}  // namespace losscli::cpu
