import torch


def huber_loss(*, input, target, delta=1.0):
    error = (input - target).abs()
    clamped = error.clamp(max=delta)
    return torch.mean(clamped * (error - 0.5 * clamped))
