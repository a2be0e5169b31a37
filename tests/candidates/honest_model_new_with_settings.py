# expect: RIGHT|SLOWER: a Model with settings of its own, which get_init_inputs gives
# reference: Model
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def __init__(self, beta, scale):
        super().__init__()
        self.beta = beta
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, predictions, targets):
        return functional.smooth_l1_loss(self.scale * predictions, targets, beta=self.beta)


class ModelNew(Model):
    def forward(self, predictions, targets):
        distance = (self.scale * predictions - targets).abs()
        near = distance.clamp(max=self.beta)
        return (near * (distance - 0.5 * near) / self.beta).mean()


def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return [0.25, 2.0]
