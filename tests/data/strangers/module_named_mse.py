"""PyTorch's name for a module that divides by the rows, beside one that is no loss."""

import torch


class Scale(torch.nn.Module):
    def forward(self, x):
        return 2 * x


class MSELoss(torch.nn.Module):
    def forward(self, a, b):
        return ((a - b) ** 2).sum() / a.shape[0]
