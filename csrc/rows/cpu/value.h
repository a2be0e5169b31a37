// Writes values of rows, in the dtype of the operands or a wider one.
#pragma once

#include <cstdint>

#include "elementwise/cpu/convert.h"
#include "rows/cpu/lanes.h"
#include "rows/kernels.h"

namespace losscli::cpu {

template <typename Stored>
void put(const RowArguments& arguments, int64_t place, double value) {
  using Wide = RealOf<Stored>;
  if (arguments.wide)
    static_cast<Wide*>(arguments.value)[place] = static_cast<Wide>(value);
  else
    static_cast<Stored*>(arguments.value)[place] = from_real<Stored>(value);
}

// The values of rows side by side, the first row's at `place`, where each row has values.
template <typename Stored>
void put_lanes(const RowArguments& arguments, const RowSpan& rows, int64_t place,
               const double* values) {
  if (!arguments.value || arguments.reduction != RowReduction::none) return;
  for (int lane = 0; lane < rows.count; ++lane)
    put<Stored>(arguments, place + rows.first + lane, values[lane]);
}

}  // namespace losscli::cpu
