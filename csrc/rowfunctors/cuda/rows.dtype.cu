// The kernels for rows of one dtype. Compiled once for each floating dtype, with
// -DLOSSCLI_DTYPE=float32 and so on.
#include <algorithm>

#include "rowfunctors/cuda/instance.h"
#include "rowfunctors/cuda/kernel.cuh"

#define LOSSCLI_JOIN_(a, b) a##b
#define LOSSCLI_JOIN(a, b) LOSSCLI_JOIN_(a, b)

namespace losscli::rowfunctors {
namespace {

using Stored = cuda::StoredAs<DType::LOSSCLI_DTYPE>::Type;
constexpr int kOperands = LOSSCLI_FUNCTOR<RealOf<Stored>>::kOperands;

// A row of this many bytes leaves a warp a few packs for each lane, and one of the second number a
// block of eight warps; longer ones need every thread to have enough reads under way.
constexpr int64_t kWarpBytes = 1 << 10;
constexpr int64_t kMediumBytes = 1 << 14;
constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;
// Where warps merge their sums; above what any functor takes.
constexpr int kMergeBytes = 4096;

const char* message(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

bool is_packed(const Call& call) {
  const auto fits = [](const void* data, int64_t stride) {
    constexpr int64_t kBytes = cuda::kPackBytes;
    return reinterpret_cast<uintptr_t>(data) % kBytes == 0 && stride * sizeof(Stored) % kBytes == 0;
  };
  bool all = fits(nullptr, call.classes);
  for (int k = 0; k < kOperands; ++k)
    all = all && fits(call.operands[k], call.strides[k]) && fits(call.gradients[k], 0);
  return all;
}

template <int warps, bool kPacked>
const char* launch(const Call& call) {
  const auto kernel = functor_kernel<Stored, warps, kPacked>;
  int most = 0;
  if (const char* wrong = message(cudaDeviceGetAttribute(
          &most, cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(call.device))))
    return wrong;
  constexpr int64_t kCount = cuda::Pack<Stored>::kCount;
  int64_t capacity = (call.classes + kCount - 1) / kCount * kCount;
  int64_t bytes = kTeams<warps> * kOperands * capacity * static_cast<int64_t>(sizeof(Stored));
  if (bytes > most - kMergeBytes) capacity = bytes = 0;
  if (const char* wrong = message(cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))))
    return wrong;
  const int64_t blocks = std::min((call.rows + kTeams<warps> - 1) / kTeams<warps>, kMostBlocks);
  kernel<<<static_cast<unsigned>(blocks), warps * kTeams<warps> * kWarpSize,
           static_cast<size_t>(bytes), static_cast<cudaStream_t>(call.stream)>>>(call, capacity);
  return message(cudaGetLastError());
}

template <bool kPacked>
const char* choose(const Call& call) {
  const int64_t bytes = call.classes * static_cast<int64_t>(sizeof(Stored));
  if (bytes <= kWarpBytes) return launch<1, kPacked>(call);
  if (bytes <= kMediumBytes) return launch<8, kPacked>(call);
  return launch<32, kPacked>(call);
}

const char* run(const Call& call) {
  return is_packed(call) ? choose<true>(call) : choose<false>(call);
}

}  // namespace

extern const Run LOSSCLI_JOIN(run_, LOSSCLI_DTYPE) = run;

}  // namespace losscli::rowfunctors
