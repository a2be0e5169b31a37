# expect: RIGHT|SAME ERROR AS PYTORCH: the divergence of two softmaxes, with a mask of rows
# loss: kl_divergence
import torch


def kl_divergence(input, target, *, temperature=1.0, reduction="mean", mask=None):
    wide = torch.promote_types(torch.promote_types(input.dtype, target.dtype), torch.float32)
    log_p, log_q = (torch.log_softmax(x.to(wide) / temperature, -1) for x in (input, target))
    q = log_q.exp()
    loss = torch.where(q == 0, 0.0, q * torch.where(q == 0, 0.0, log_q - log_p)).sum(-1)
    count = loss.numel()
    if mask is not None:
        loss, count = torch.where(mask, loss, 0.0), mask.sum()
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / count}[reduction].to(input.dtype)
