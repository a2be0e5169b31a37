"""Cross entropy over ranks: Megatron's three collectives, correct, or with one mistake."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations import Implementation
from losscli.losses.rows.forms import IGNORE_INDEX
from losscli.ranks.placements import share
from losscli.verify.selftest.surgery import graft, reduced, regrade, stand_in


@dataclass(frozen=True)
class _Mistakes:
    maximum: str = "of all"
    """Which maximum is subtracted: ``of all``, ``of each`` rank, or ``none``."""
    sums_alone: bool = False
    """Each rank normalizes by the sum of its own exponentials."""
    smooths_alone: bool = False
    """Each rank smooths over its own classes."""
    own_softmax: bool = False
    """The gradient has the softmax of each rank's classes."""
    offset: int = 0
    """The error of the first class of all ranks but the first."""
    counts_share: bool = False
    """The mean divides by a rank's share of the rows."""


def _sum(values: Tensor) -> Tensor:
    total = values.clone()
    dist.all_reduce(total)
    return total


def _rows(case: Case, input: Tensor, target: Tensor, does: _Mistakes) -> Tensor:
    """Return each row's loss in float64, whose gradient is computed with it."""
    smoothing, ignored = case.params["label_smoothing"], int(case.params[IGNORE_INDEX.name])
    first, own = share(case.classes, dist.get_world_size(), dist.get_rank())
    first += does.offset if first else 0
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
    if does.maximum == "of all":
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    if does.maximum == "none":
        largest = torch.zeros_like(largest)
    own_sum = (logits - largest[:, None]).exp().sum(1)
    total = own_sum if does.sums_alone else _sum(own_sum)
    log = total.log() + largest
    picked = _sum(torch.where(hot > 0, logits, 0.0).sum(1))
    classes = own if does.smooths_alone else case.classes
    mean = logits.mean(1) if does.smooths_alone else _sum(logits.sum(1)) / classes
    loss = torch.where(kept, log - (1 - smoothing) * picked - smoothing * mean, 0.0)
    normal = own_sum.log() + largest if does.own_softmax else log
    gradient = (logits - normal[:, None]).exp() - (1 - smoothing) * hot
    gradient -= smoothing / max(classes, 1)

    def of_logits(incoming: Tensor) -> Tensor:
        return torch.where(kept[:, None], gradient * incoming.detach(), 0.0)

    return graft(loss, regrade(input.double(), of_logits).sum(1))


def _loss(does: _Mistakes, case: Case, input: Tensor, target: Tensor) -> Tensor:
    rows = _rows(case, input, target, does)
    count = (target != int(case.params[IGNORE_INDEX.name])).sum()
    if does.counts_share:
        count = count / dist.get_world_size()
    return reduced(case, rows, count).to(input.dtype)


def _own(
    name: str, applies: Callable[[Case], bool] = lambda case: True, **mistakes: Any
) -> Implementation:
    does = _Mistakes(**mistakes)
    return stand_in(
        name,
        lambda case: partial(_loss, does, case),
        lambda case: bool(case.placement) and case.loss == "cross_entropy" and applies(case),
    )


SPLIT_WRONG = (
    _own("wrong:smoothing alone", smooths_alone=True),
    _own("wrong:no maximum", maximum="none"),
    _own("wrong:maximum alone", maximum="of each"),
    _own("wrong:sum alone", sums_alone=True),
    _own("wrong:softmax alone", own_softmax=True),
    _own("wrong:target off", offset=1),
    _own("wrong:share counted", lambda case: case.reduction == "mean", counts_share=True),
)
SPLIT_LEGITIMATE = (_own("legitimate:three collectives"),)
