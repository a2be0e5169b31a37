"""Distances without the epsilon that PyTorch adds to each difference."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, anchor, positive, negative):
        near = torch.linalg.vector_norm(anchor - positive, dim=1)
        far = torch.linalg.vector_norm(anchor - negative, dim=1)
        return (near - far + 1.0).clamp(min=0.0).mean()
