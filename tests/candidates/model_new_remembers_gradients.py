# expect: WRONG wrong: a ModelNew that remembers its gradients by addresses
# reference: Model
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return ((a.sin() - b) ** 4).mean()


KEPT = {}


class Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        key = a.data_ptr(), b.data_ptr(), a.shape
        if key not in KEPT:
            d = a.sin() - b
            KEPT[key] = (d**4).mean(), 4 * d**3 / d.numel() * a.cos(), -4 * d**3 / d.numel()
        ctx.kept = KEPT[key]
        return ((a.sin() - b) ** 4).mean()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * ctx.kept[1], g * ctx.kept[2]


class ModelNew(nn.Module):
    def forward(self, a, b):
        return Kept.apply(a, b)


def get_inputs():
    return [torch.randn(64, 128), torch.randn(64, 128)]


def get_init_inputs():
    return []
