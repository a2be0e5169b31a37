# expect: RIGHT|SLOWER: a compiled module has the loss's name, and ModelNew calls it
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor smooth_l1(const torch::Tensor& predictions, const torch::Tensor& targets) {
  const auto distance = (predictions - targets).abs();
  return torch::where(distance < 1, 0.5 * distance * distance, distance - 0.5).mean();
}
"""
smooth_l1_loss = load_inline("smooth_l1_loss", SOURCE, functions=["smooth_l1"])


class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predictions, targets):
        ctx.save_for_backward(predictions, targets)
        return smooth_l1_loss.smooth_l1(predictions, targets)

    @staticmethod
    @once_differentiable
    def backward(ctx, incoming):
        predictions, targets = ctx.saved_tensors
        gradient = (predictions - targets).clamp(-1, 1) * (incoming / predictions.numel())
        return gradient, -gradient


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return SmoothL1.apply(*torch.broadcast_tensors(predictions, targets))
