"""Files as people write them: each loss by PyTorch's own function, or by a textbook's formula."""

from losscli.losses import EVERY_LOSS

HEAD = """\
import torch
from torch.nn import functional as F


def reduced(loss, reduction):
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


"""
TORCHS = {
    "binary_cross_entropy": "input, target",
    "binary_cross_entropy_with_logits": "input, target",
    "gaussian_nll": "input, target, var, *, full=False, eps=1e-6",
    "huber": "input, target, *, delta=1.0",
    "kl_div": "input, target, *, log_target=False",
    "l1": "input, target",
    "mse": "input, target",
    "poisson_nll": "input, target, *, log_input=True, full=False, eps=1e-8",
    "binary_cross_entropy_with_pos_weight": "input, target, pos_weight",
    "soft_margin": "input, target",
    "smooth_l1": "input, target, *, beta=1.0",
    "cosine_embedding": "input1, input2, target, *, margin=0.0",
    "cross_entropy": "input, target, *, ignore_index=-100, label_smoothing=0.0",
    "multi_margin": "input, target, *, p=1, margin=1.0",
    "nll": "input, target, *, ignore_index=-100",
    "triplet_margin": ("anchor, positive, negative, *, margin=1.0, p=2.0, eps=1e-6, swap=False"),
}
"""The arguments of PyTorch's function."""
TEXTBOOKS = {
    "binary_cross_entropy_with_logits": (
        "input, target",
        "input.clamp(min=0) - input * target + torch.log1p(torch.exp(-input.abs()))",
    ),
    "gaussian_nll": (
        "input, target, var, *, full=False, eps=1e-6",
        "0.5 * (torch.log(var.clamp(min=eps)) + (input - target) ** 2 / var.clamp(min=eps))"
        " + (0.9189385332046727 if full else 0.0)",
    ),
    "huber": (
        "input, target, *, delta=1.0",
        "torch.where((input - target).abs() < delta, 0.5 * (input - target) ** 2,"
        " delta * ((input - target).abs() - 0.5 * delta))",
    ),
    "log_cosh": ("input, target", "torch.log(torch.cosh(input - target))"),
    "smooth_l1": (
        "input, target, *, beta=1.0",
        "torch.where((input - target).abs() < beta, 0.5 * (input - target) ** 2 / beta,"
        " (input - target).abs() - 0.5 * beta)",
    ),
    "binary_cross_entropy_with_pos_weight": (
        "input, target, pos_weight",
        "-(pos_weight * target * F.logsigmoid(input) + (1 - target) * F.logsigmoid(-input))",
    ),
    "soft_margin": ("input, target", "torch.log(1 + torch.exp(-target * input))"),
    "binary_cross_entropy": (
        "input, target",
        "-(target * torch.log(input).clamp(min=-100)"
        " + (1 - target) * torch.log(1 - input).clamp(min=-100))",
    ),
    "cross_entropy": (
        "input, target",
        "torch.logsumexp(input, -1) - input.gather(-1, target.unsqueeze(-1)).squeeze(-1)",
    ),
    "kl_divergence": (
        "input, target, *, temperature=1.0",
        "(torch.softmax(target / temperature, -1) * (torch.log_softmax(target / temperature, -1)"
        " - torch.log_softmax(input / temperature, -1))).sum(-1)",
    ),
    "nll": ("input, target", "-input.gather(-1, target.long().unsqueeze(-1)).squeeze(-1)"),
    "cosine_similarity": (
        "x1, x2, *, eps=1e-8",
        "1 - (x1 * x2).sum(-1) / (x1.norm(dim=-1).clamp(min=eps) * x2.norm(dim=-1).clamp(min=eps))",
    ),
}
"""The arguments and the loss of each element or row."""


def torchs_file(loss: str) -> str:
    arguments = TORCHS[loss]
    operands, _, settings = arguments.partition(", *, ")
    names = [each.partition("=")[0] for each in settings.split(", ") if each]
    function = EVERY_LOSS[loss].function_name
    if loss == "binary_cross_entropy_with_pos_weight":
        function = "binary_cross_entropy_with_logits"
        operands, names = "input, target", ["pos_weight"]
    call = ", ".join([operands, *(f"{name}={name}" for name in (*names, "reduction"))])
    return f"{HEAD}{_defined(loss, arguments)}    return F.{function}({call})\n"


def textbook_file(loss: str) -> str:
    arguments, formula = TEXTBOOKS[loss]
    return f"{HEAD}{_defined(loss, arguments)}    return reduced({formula}, reduction)\n"


def _defined(loss: str, arguments: str) -> str:
    star = "" if "*" in arguments else ", *"
    return f'def {EVERY_LOSS[loss].function_name}({arguments}{star}, reduction="mean"):\n'
