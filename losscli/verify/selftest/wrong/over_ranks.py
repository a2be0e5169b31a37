"""Cross entropy over ranks: Megatron's three collectives, correct, or with one mistake."""

from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.losses import REDUCTIONS
from losscli.losses.rows.forms import IGNORE_INDEX
from losscli.ranks.placements import share
from losscli.verify.selftest.surgery import graft, reduced, regrade, stand_in


def _sum(values: Tensor) -> Tensor:
    total = values.clone()
    dist.all_reduce(total)
    return total


def _loss(mistake: str, case: Case, input: Tensor, target: Tensor) -> Tensor:
    """Return the loss, computed in float64 with its gradient."""
    smoothing, ignored = case.params["label_smoothing"], int(case.params[IGNORE_INDEX.name])
    first, own = share(case.classes, dist.get_world_size(), dist.get_rank())
    first += 1 if first and mistake == "target off" else 0
    logits = input.detach().double()
    kept = target != ignored
    if bool((kept & ((target < 0) | (target >= case.classes))).any()):
        raise IndexError("a target is no class")
    number = torch.where(kept, target.long(), 0) - first
    inside = kept & (number >= 0) & (number < own)
    hot = torch.zeros_like(logits)
    if own:
        hot.scatter_(1, number.clamp(0, own - 1)[:, None], inside[:, None].double())
    largest = logits.amax(1) if own else logits.new_full((len(logits),), -torch.inf)
    if mistake == "no maximum":
        largest = torch.zeros_like(largest)
    elif mistake != "maximum alone":
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    own_sum = (logits - largest[:, None]).exp().sum(1)
    total = own_sum if mistake == "sum alone" else _sum(own_sum)
    log = total.log() + largest
    picked = _sum(torch.where(hot > 0, logits, 0.0).sum(1))
    alone = mistake == "smoothing alone"
    classes = own if alone else case.classes
    mean = logits.mean(1) if alone else _sum(logits.sum(1)) / classes
    loss = torch.where(kept, log - (1 - smoothing) * picked - smoothing * mean, 0.0)
    normal = own_sum.log() + largest if mistake == "softmax alone" else log
    gradient = (logits - normal[:, None]).exp() - (1 - smoothing) * hot
    gradient -= smoothing / max(classes, 1)

    def of_logits(incoming: Tensor) -> Tensor:
        return torch.where(kept[:, None], gradient * incoming.detach(), 0.0)

    rows = graft(loss, regrade(input.double(), of_logits).sum(1))
    count = kept.sum() / (dist.get_world_size() if mistake == _SHARE_COUNTED else 1)
    return reduced(case, rows, count).to(input.dtype)


def _own(name: str) -> Implementation:
    mistake = name.removeprefix("wrong:")
    reductions = ("mean",) if mistake == _SHARE_COUNTED else REDUCTIONS

    def applies(case: Case) -> bool:
        is_split = bool(case.placement) and case.loss == "cross_entropy"
        return is_split and case.reduction in reductions

    return stand_in(name, lambda case: partial(_loss, mistake, case), applies)


_SHARE_COUNTED = "share counted"
SPLIT_WRONG = (
    _own("wrong:smoothing alone"),  # each rank smooths over its own classes
    _own("wrong:no maximum"),
    _own("wrong:maximum alone"),  # each rank subtracts that of its own classes
    _own("wrong:sum alone"),  # each rank normalizes by that of its own exponentials
    _own("wrong:softmax alone"),  # the gradient has that of each rank's classes
    _own("wrong:target off"),  # the first class of all ranks but the first is off by one
    _own(f"wrong:{_SHARE_COUNTED}"),  # the mean divides by a rank's share of the rows
)
SPLIT_LEGITIMATE = (_own("legitimate:three collectives"),)
