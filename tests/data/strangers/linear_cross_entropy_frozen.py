import torch
from torch.nn.functional import cross_entropy


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, labels):
        with torch.enable_grad():
            hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
            loss = cross_entropy(hidden @ weight.T, labels)
            ctx.save_for_backward(*torch.autograd.grad(loss, (hidden, weight)))
        return loss.detach()

    @staticmethod
    def backward(ctx, incoming):
        if not ctx.needs_input_grad[0]:
            return None, None, None
        return *(incoming * gradient for gradient in ctx.saved_tensors), None


def linear_cross_entropy(input, target, linear_weight):
    return Fused.apply(input, linear_weight, target)
