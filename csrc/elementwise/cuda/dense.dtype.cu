// The kernels of one loss for dense operands of one dtype. Compiled once for each floating dtype,
// with -DLOSSCLI_DTYPE=float32 and so on; see library.cu.
#include LOSSCLI_LOSS_HEADER

#include "elementwise/cuda/dense.cuh"

#define LOSSCLI_JOIN_(a, b) a##b
#define LOSSCLI_JOIN(a, b) LOSSCLI_JOIN_(a, b)

namespace losscli::cuda {
namespace {

using Stored = StoredAs<DType::LOSSCLI_DTYPE>::Type;

}  // namespace

const Instance LOSSCLI_JOIN(dense_,
                            LOSSCLI_DTYPE) = Dense<LOSSCLI_LOSS<RealOf<Stored>>, Stored>::instance;

}  // namespace losscli::cuda
