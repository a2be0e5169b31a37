# expect: DOES NOT BUILD signature: takes weights and a temperature that no judge has
from torch.nn import functional


def smooth_l1_loss(logits, labels, weights, temperature):
    return (weights * functional.smooth_l1_loss(logits / temperature, labels)).mean()
