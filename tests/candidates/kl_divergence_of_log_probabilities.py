# expect: WRONG wrong: takes the target for log-probabilities, where it is logits
# loss: kl_divergence
from torch.nn import functional


def kl_divergence(input, target, *, temperature=1.0, reduction="mean"):
    log_p = functional.log_softmax(input / temperature, -1)
    loss = functional.kl_div(log_p, target, reduction="none", log_target=True).sum(-1)
    return loss if reduction == "none" else getattr(loss, reduction)()
