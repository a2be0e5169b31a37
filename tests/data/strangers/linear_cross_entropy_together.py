import torch
from torch.nn.functional import cross_entropy


class Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, labels):
        with torch.enable_grad():
            given = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
            loss = cross_entropy(given[0] @ given[1].T, labels)
            found = torch.autograd.grad(loss, given)
        ctx.save_for_backward(*(g for g, x in zip(found, (hidden, weight)) if x.requires_grad))
        return loss.detach()

    @staticmethod
    def backward(ctx, incoming):
        of_hidden, of_weight = ctx.saved_tensors
        return incoming * of_hidden, incoming * of_weight, None


def linear_cross_entropy(input, target, linear_weight):
    return Together.apply(input, linear_weight, target)
