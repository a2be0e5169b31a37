// The kernels of one loss for operands of any strides and dtypes, computed in double.
#include LOSSCLI_LOSS_HEADER

#include "elementwise/cuda/strided.cuh"

namespace losscli::cuda {

const Instance strided_double = Strided<LOSSCLI_LOSS<double>, double>::instance;

}  // namespace losscli::cuda
