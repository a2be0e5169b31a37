# expect: RIGHT BUT NO GRADIENT no_gradient: a ModelNew that is made for inference
# reference: Model
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, input, target):
        return functional.smooth_l1_loss(input, target)


class ModelNew(nn.Module):
    @torch.no_grad()
    def forward(self, input, target):
        return functional.smooth_l1_loss(input, target)


def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return []
