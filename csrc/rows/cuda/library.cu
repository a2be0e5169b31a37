// The library of one loss over rows on CUDA:
//
//   rows.dtype.cu   once for each floating dtype, with -DLOSSCLI_DTYPE=float32, float64, float16
//                   and bfloat16: the kernels, and what chooses among them
//   library.cu      once: this file
#include LOSSCLI_LOSS_HEADER

#include "rows/cuda/incoming.cuh"
#include "rows/cuda/launch.h"

namespace losscli::cuda {
namespace {

Needs needs(const RowArguments& arguments, const DeviceFacts&) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  Needs needs;
  needs.workspace =
      sizeof(RowSums) * (kMostTotals + 1 + (sums ? static_cast<size_t>(arguments.rows()) : 0));
  needs.slot = true;
  return needs;
}

Status run(const RowArguments& arguments, const LaunchContext& context) {
  // In the order of DType.
  const LaunchRows of_dtype[] = {rows_float32, rows_float64, rows_float16, rows_bfloat16};
  return of_dtype[static_cast<int>(arguments.dtype)](arguments, context);
}

using Loss = LOSSCLI_LOSS<float>;
const RowKernels kernels{kInterface, Loss::rows, Loss::parameter_total, Loss::reads, needs, run};

}  // namespace
}  // namespace losscli::cuda

LOSSCLI_EXPORT const losscli::RowKernels* losscli_row_kernels() { return &losscli::cuda::kernels; }
