# expect: WRONG wrong: multiplied by the squared temperature, as distillation often has it
# loss: kl_divergence
import torch


def kl_divergence(input, target, *, temperature=1.0, reduction="mean"):
    wide = torch.promote_types(torch.promote_types(input.dtype, target.dtype), torch.float32)
    log_p, log_q = (torch.log_softmax(x.to(wide) / temperature, -1) for x in (input, target))
    q = log_q.exp()
    loss = torch.where(q == 0, 0.0, q * torch.where(q == 0, 0.0, log_q - log_p)).sum(-1)
    loss = loss * temperature**2
    return {"none": loss, "sum": loss.sum(), "mean": loss.mean()}[reduction].to(input.dtype)
