# expect: WRONG wrong: compares the k classes alone, without a bin for all others
# loss: topk_kl_divergence
from torch.nn import functional


def topk_kl_divergence(input, classes, target, *, reverse=False, temperature=1.0, reduction="mean"):
    log_p = functional.log_softmax(input / temperature, -1).gather(-1, classes.long())
    first, second = (target, log_p) if reverse else (log_p, target)
    loss = functional.kl_div(first, second, reduction="none", log_target=True).sum(-1)
    return loss if reduction == "none" else getattr(loss, reduction)()
