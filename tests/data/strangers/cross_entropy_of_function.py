"""A class that only has the name of PyTorch's module."""

import torch


class CrossEntropyLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels, smoothing):
        log_probabilities = logits.log_softmax(1)
        ctx.save_for_backward(log_probabilities, labels)
        ctx.smoothing = smoothing
        picked = log_probabilities.gather(1, labels[:, None])[:, 0]
        return -(1 - smoothing) * picked - smoothing * log_probabilities.mean(1)

    @staticmethod
    def backward(ctx, grad):
        log_probabilities, labels = ctx.saved_tensors
        gradient = log_probabilities.exp() - ctx.smoothing / log_probabilities.shape[1]
        gradient[torch.arange(len(gradient)), labels] -= 1 - ctx.smoothing
        return gradient * grad[:, None], None, None


def cross_entropy_loss(logits, labels, label_smoothing=0.0):
    return CrossEntropyLoss.apply(logits, labels, label_smoothing)
