# expect: RIGHT|SLOWER: one atomic addition per block, in float64, so bits may differ between runs
# gpu
import torch
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


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, elements):
        ctx.shape, ctx.dtype = elements.shape, elements.dtype
        with torch.cuda.device(elements.device):
            stream = torch.cuda.current_stream().cuda_stream
            return extension.sum(elements.float().contiguous(), stream)

    @staticmethod
    def backward(ctx, incoming):
        return incoming.to(ctx.dtype).expand(ctx.shape)


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    input, target = torch.broadcast_tensors(input, target)
    dtype = torch.promote_types(input.dtype, target.dtype)
    elements = torch.nn.functional.smooth_l1_loss(
        input.to(dtype), target.to(dtype), reduction="none", beta=beta
    )
    if reduction == "none" or dtype == torch.float64:
        return {"none": elements, "mean": elements.mean(), "sum": elements.sum()}[reduction]
    total = Sum.apply(elements)
    return (total / elements.numel() if reduction == "mean" else total).to(dtype)
