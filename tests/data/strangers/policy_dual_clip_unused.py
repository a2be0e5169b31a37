"""A parameter is accepted and never used, which shows only where no other hides it."""

import torch


def policy_loss(x, old_log_probs, advantages, dual_clip=0.0, cispo=False, reduction="mean"):
    ratio = (x - old_log_probs).exp()
    clipped = ratio.clamp(0.8, 1.2)
    if cispo:
        loss = -advantages * clipped.detach() * x
    else:
        loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    return loss if reduction == "none" else getattr(loss, reduction)()
