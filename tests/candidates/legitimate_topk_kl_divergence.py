# expect: RIGHT|SAME ERROR AS PYTORCH: the divergence from k classes, of which the rest is added up
# loss: topk_kl_divergence
import torch


def topk_kl_divergence(
    input, classes, target, *, reverse=False, temperature=1.0, mask=None, reduction="mean"
):
    wide = torch.promote_types(torch.promote_types(input.dtype, target.dtype), torch.float32)
    x, t, numbers = input.to(wide) / temperature, target.double(), classes.long()
    if mask is not None:
        kept = mask.unsqueeze(-1)
        x, t = (torch.where(kept, each, 0.0) for each in (x, t))
    others = x.scatter(-1, numbers, torch.finfo(wide).min).logsumexp(-1, keepdim=True)
    rest = 1 - t.exp().sum(-1, keepdim=True)
    log_rest = torch.where(rest > 0, rest, 1.0).log().masked_fill(rest <= 0, -torch.inf)
    p, q = torch.cat([x.gather(-1, numbers), others], -1), torch.cat([t, log_rest], -1).to(wide)
    if numbers.shape[-1] == x.shape[-1]:
        p, q = p[..., :-1], q[..., :-1]
    p, q = (each.log_softmax(-1) for each in (p, q))
    first, second = (p, q) if reverse else (q, p)
    share = first.exp()
    loss = (share * torch.where(share == 0, 0.0, first - second)).sum(-1)
    count = loss.numel()
    if mask is not None:
        loss, count = torch.where(mask, loss, 0.0), mask.sum()
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / count}[reduction]
