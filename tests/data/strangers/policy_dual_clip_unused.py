"""A parameter is accepted and never used, which shows only where no other hides it."""

import torch


def policy_loss(
    log_probs,
    old_log_probs,
    advantages,
    clip_low=0.2,
    clip_high=0.2,
    dual_clip=0.0,
    cispo=False,
    reduction="mean",
):
    ratio = (log_probs - old_log_probs).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    if cispo:
        loss = -advantages * clipped.detach() * log_probs
    else:
        loss = torch.maximum(-advantages * ratio, -advantages * clipped)
    return loss if reduction == "none" else getattr(loss, reduction)()
