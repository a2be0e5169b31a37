# expect: WRONG wrong: with a mask, the mean divides by the number of all rows
# loss: kl_divergence
from legitimate_kl_divergence import kl_divergence as right


def kl_divergence(input, target, *, temperature=1.0, reduction="mean", mask=None):
    loss = right(input, target, temperature=temperature, reduction="none", mask=mask)
    return loss if reduction == "none" else getattr(loss, reduction)()
