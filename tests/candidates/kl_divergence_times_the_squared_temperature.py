# expect: WRONG wrong: multiplied by the squared temperature, as distillation often has it
# loss: kl_divergence
from legitimate_kl_divergence import kl_divergence as right


def kl_divergence(input, target, *, temperature=1.0, reduction="mean"):
    return temperature**2 * right(input, target, temperature=temperature, reduction=reduction)
