# expect: WRONG wrong: beside its Model, squared error everywhere
# reference: Model
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, input, target):
        return functional.smooth_l1_loss(input, target)


class ModelNew(nn.Module):
    def forward(self, input, target):
        return 0.5 * ((input - target) ** 2).mean()


def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return []
