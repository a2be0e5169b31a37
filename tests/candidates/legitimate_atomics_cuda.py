# expect: RIGHT|SLOWER: one atomic addition per block, in float64, so bits may differ between runs
# gpu
import torch
from bases.own_sum import loss_by
from torch.utils.cpp_extension import load_inline

CUDA = """
__global__ void kernel(const float* elements, double* total, int64_t n) {
  double own = 0;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n;
       i += int64_t(gridDim.x) * blockDim.x)
    own += elements[i];
  for (int lane = 16; lane; lane /= 2) own += __shfl_down_sync(~0u, own, lane);
  if (threadIdx.x % 32 == 0) atomicAdd(total, own);
}

torch::Tensor sum(torch::Tensor elements, int64_t stream) {
  auto total = torch::zeros({}, elements.options().dtype(torch::kDouble));
  const auto blocks = std::min<int64_t>((elements.numel() + 255) / 256, 4096);
  if (blocks)
    kernel<<<blocks, 256, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
        elements.data_ptr<float>(), total.data_ptr<double>(), elements.numel());
  const auto status = cudaGetLastError();
  TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
  return total;
}
"""
extension = load_inline(
    "atomics",
    "torch::Tensor sum(torch::Tensor elements, int64_t stream);",
    CUDA,
    functions=["sum"],
)


def total_of(elements):
    with torch.cuda.device(elements.device):
        return extension.sum(elements, torch.cuda.current_stream().cuda_stream)


smooth_l1_loss = loss_by(total_of)
