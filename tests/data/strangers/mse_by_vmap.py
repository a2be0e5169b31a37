import torch


def mse_loss(input, target):
    return torch.vmap(lambda x, y: torch.dot(x - y, x - y) / len(x))(input, target).mean()
