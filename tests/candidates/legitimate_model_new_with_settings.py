# expect: RIGHT|SLOWER: a Model with a setting of its own, which get_init_inputs gives
# reference: Model
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        return functional.smooth_l1_loss(predictions, targets, beta=self.beta)


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        distance = (predictions - targets).abs()
        near = distance.clamp(max=self.beta)
        return (near * (distance - 0.5 * near) / self.beta).mean()


def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return [0.25]
