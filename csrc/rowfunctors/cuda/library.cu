// What the library of a loss made from a functor exports.
//
//   rows.dtype.cu   once for each floating dtype, with -DLOSSCLI_DTYPE=float32, float64, float16
//   and
//                   bfloat16
#include <cuda_runtime.h>

#include "core/platform.h"
#include "rowfunctors/cuda/instance.h"

LOSSCLI_EXPORT const char* losscli_row_functor(const losscli::rowfunctors::Call* call) {
  using namespace losscli;
  using namespace losscli::rowfunctors;
  // The library has a CUDA runtime of its own, which starts on device 0.
  int before = 0;
  cudaGetDevice(&before);
  if (const cudaError_t error = cudaSetDevice(call->device)) return cudaGetErrorString(error);
  const char* wrong = "rows must be in float32, float64, float16 or bfloat16";
  switch (call->dtype) {
    case DType::float32:
      wrong = run_float32(*call);
      break;
    case DType::float64:
      wrong = run_float64(*call);
      break;
    case DType::float16:
      wrong = run_float16(*call);
      break;
    case DType::bfloat16:
      wrong = run_bfloat16(*call);
      break;
    default:
      break;
  }
  cudaSetDevice(before);
  return wrong;
}
