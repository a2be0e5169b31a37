import torch


def quantile_loss(input, target, quantile=0.5):
    error = target - input
    return torch.where(error >= 0, quantile * error, (quantile - 1) * error).mean()
