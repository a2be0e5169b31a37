# expect: WRONG wrong: the mean is over all elements, as that of kl_div is, not over the rows
# loss: kl_divergence
from torch.nn import functional


def kl_divergence(input, target, *, temperature=1.0, reduction="mean"):
    log_p, log_q = (functional.log_softmax(x / temperature, -1) for x in (input, target))
    loss = functional.kl_div(log_p, log_q, reduction="none", log_target=True)
    return loss.sum(-1) if reduction == "none" else getattr(loss, reduction)()
