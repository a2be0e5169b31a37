// The kernels of one loss for operands of any strides and dtypes, computed in float.
#include LOSSCLI_LOSS_HEADER

#include "elementwise/cuda/strided.cuh"

namespace losscli::cuda {

const Instance strided_float = Strided<LOSSCLI_LOSS<float>, float>::instance;

}  // namespace losscli::cuda
