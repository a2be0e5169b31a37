# expect: RIGHT|SLOWER: the common benchmark form over torch alone, beside its own Model
# reference: Model
import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """Smooth L1, its formula written out."""

    def forward(self, predictions, targets):
        distance = (predictions - targets).abs()
        return torch.where(distance < 1, 0.5 * distance**2, distance - 0.5).mean()


class ModelNew(nn.Module):
    """The same by torch's own op."""

    def forward(self, predictions, targets):
        return functional.smooth_l1_loss(predictions, targets)


batch_size = 128
input_shape = (4096,)


def get_inputs():
    return [torch.randn(batch_size, *input_shape), torch.randn(batch_size, *input_shape)]


def get_init_inputs():
    return []
