# expect: NOT JUDGED bad_reference: its Model raises
# reference: Model
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    def forward(self, input, target):
        raise RuntimeError("unfinished")


class ModelNew(nn.Module):
    def forward(self, input, target):
        return functional.smooth_l1_loss(input, target)


def get_inputs():
    return [torch.rand(64, 128), torch.rand(64, 128)]


def get_init_inputs():
    return []
