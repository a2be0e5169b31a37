// The library of one functor over rows on CUDA:
//
//   functors.dtype.cu   once for each floating dtype, with -DLOSSCLI_DTYPE=float32, float64,
//                       float16 and bfloat16: the kernels
//   library.cu          once: this file, which chooses
#include LOSSCLI_LOSS_HEADER

#include "rows/functors/cuda/instance.h"
#include "rows/functors/cuda/totals.cuh"

namespace losscli::cuda {
namespace {

Needs needs(const RowArguments& arguments, const DeviceFacts&) {
  const bool sums = arguments.value && arguments.reduction != RowReduction::none;
  Needs needs;
  needs.workspace =
      sizeof(Totals) + sizeof(double) * (1 + (sums ? static_cast<size_t>(arguments.rows()) : 0));
  needs.slot = true;
  return needs;
}

Status run(const RowArguments& arguments, const LaunchContext& context) {
  switch (arguments.dtype) {
    case DType::float64:
      return functor_float64(arguments, context);
    case DType::float16:
      return functor_float16(arguments, context);
    case DType::bfloat16:
      return functor_bfloat16(arguments, context);
    default:
      return functor_float32(arguments, context);
  }
}

using Loss = LOSSCLI_LOSS<float>;
const RowKernels kernels{kInterface, Loss::rows, Loss::parameter_total, needs, run};

}  // namespace
}  // namespace losscli::cuda

LOSSCLI_EXPORT const losscli::RowKernels* losscli_row_kernels() { return &losscli::cuda::kernels; }
