# expect: RIGHT|SLOWER: a ModelNew with neither Model nor inputs, beside the oracle
from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return functional.smooth_l1_loss(predictions, targets)
