"""Bench over ranks: each rank times the same calls, the slowest counts, and all decide alike."""

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from losscli.bench.conditions import Conditions, look_at
from losscli.bench.limit import TIMED, Limits
from losscli.bench.passes import Contents
from losscli.bench.plan import Task
from losscli.bench.runner import Runner
from losscli.bench.sampling import Contender, interleave
from losscli.bench.statistics import summarize
from losscli.cases.axes import FORWARD_BACKWARD, Mode, PassName
from losscli.cases.case import Case
from losscli.implementations.errors import SubjectError
from losscli.implementations.timer import Call, Timer, Warm, make_timer
from losscli.implementations.wholes import check_equal, shards_of, whole_gradients
from losscli.losses import HIDDEN_STATE
from losscli.ranks.group import Group, free_bytes, largest, together
from losscli.ranks.placements import CUTS
from losscli.ranks.shards import gather_into
from losscli.runs.measurements import Collective
from losscli.runs.records import FAIL, BenchResult, VerifyResult
from losscli.truth.gate import CHECK
from losscli.truth.inputs import make_inputs


def runner_of_ranks(
    group: Group,
    device: str,
    notify: Callable[[str], None],
    show: Callable[[Sequence[BenchResult]], object] | None = None,
) -> Runner:
    """Return a rank's runner; only the first rank's notes and results are shown."""

    def clock() -> float:
        return largest(group, time.perf_counter())

    def timer(device: str, evicts: bool, mode: Mode) -> Timer:
        agree = partial(largest, group)
        return SlowestTimer(make_timer(device, evicts, mode, agree=agree, meet=group.meet), group)

    return Runner(
        device,
        free_bytes=partial(free_bytes, group),
        make_timer=timer,
        limits=Limits(device, clock=clock),
        conditions=_ConditionsOfRanks(look_at(device), group),
        notify=notify if group.rank == 0 else lambda note: None,
        show=show if group.rank == 0 else None,
        clock=clock,
        contents=lambda task: together(group, lambda: _SplitContents(task, group)),
        exchange=_Exchanges(group, device, clock),
    )


class SlowestTimer:
    """Takes samples on all ranks at once; see :class:`Timer`. The slowest rank's counts."""

    def __init__(self, own: Timer, group: Group) -> None:
        self.own, self.group = own, group

    @property
    def gaps(self) -> int:
        return self.own.gaps

    def warm_up(self, call: Call) -> Warm:
        return together(self.group, partial(self.own.warm_up, call))

    def measure(self, queue: Sequence[Warm]) -> list[float]:
        samples = together(self.group, partial(self.own.measure, queue))
        of_ranks = list(zip(*self.group.gather("reports its samples", samples), strict=True))
        for warm, seconds in zip(queue, of_ranks, strict=True):
            warm.of_ranks.append(seconds)
        return [max(seconds) for seconds in of_ranks]


class _ConditionsOfRanks(Conditions):
    """Discards samples on all ranks if one was throttled: all wait for the slowest."""

    def __init__(self, own: Conditions, group: Group) -> None:
        self.own, self.group = own, group

    def begin(self) -> None:
        self.own.begin()

    def slowed(self) -> bool:
        return any(self.group.gather("reports whether it was slowed", self.own.slowed()))

    def record(self) -> dict[str, Any]:
        """Return the first rank's conditions, with the largest ``others`` of any rank."""
        records = self.group.gather("reports its conditions", self.own.record())
        others = [each["others"] for each in records if each.get("others") is not None]
        return records[0] | ({"others": max(others)} if others else {})


class _SplitContents(Contents):
    """Whole operands, by which every rank judges, and this rank's shards, which are timed."""

    def __init__(self, task: Task, group: Group) -> None:
        super().__init__(task, make_inputs(task.case))
        self.group = group
        self.shards = shards_of(self.case, self.operands, group)
        self._split = next(iter(self.shards)) in CUTS[self.case.loss]

    @property
    def timed(self) -> tuple[Tensor, ...]:
        return tuple(self.shards.values())

    @property
    def read(self) -> tuple[Tensor, ...]:
        """The shards; one with fewer classes than the first rank's is replaced by as many bytes."""
        due = self.case.shard.shapes
        return tuple(
            shard if shard.shape == due[name] else shard.new_zeros(due[name])
            for name, shard in self.shards.items()
        )

    def change(self) -> None:
        super().change()
        if self._split:
            name, shard = next(iter(self.shards.items()))
            shard.copy_(shards_of(self.case, {name: self.prediction}, self.group)[name])

    def touch(self) -> None:
        self.timed[0][:1, :1].mul_(1)

    def judge(
        self, name: str, pass_: PassName, *results: Tensor | None, incoming: float = 1.0
    ) -> VerifyResult:
        """Judge a loss, which all ranks must have, and the gathered gradients."""
        loss, *gradients = results
        try:
            check_equal(self.group, "loss", loss)
            wholes = whole_gradients(self.case, self.group, gradients)
        except SubjectError as error:
            return VerifyResult(self.case, name, CHECK, FAIL, str(error), code=error.code)
        return super().judge(name, pass_, loss, *wholes, incoming=incoming)


class _Exchanges:
    """Measures collectives that exchange as many bytes as a call, and keeps their times."""

    def __init__(self, group: Group, device: str, clock: Callable[[], float]) -> None:
        """``clock``: the same seconds for all ranks."""
        self.group, self.device, self.clock = group, device, clock
        self._found: dict[tuple[tuple[int, int], Timer], float] = {}

    def __call__(self, case: Case, pass_: PassName, timer: Timer) -> Collective | None:
        """Return what the ranks of a case exchange in a call; None for one rank."""
        gathered, added = _exchanged_bytes(case, pass_)
        if self.group.size == 1 or not gathered:
            return None
        key = (gathered, added), timer
        if key not in self._found:
            contender = Contender("", self._calls(gathered, added))
            contender.warm_up(timer)
            interleave(timer, [contender], TIMED, seed=case.seed, clock=self.clock)
            if contender.failure:
                raise contender.failure
            self._found[key] = summarize(contender.samples).median
        return Collective(gathered + added, self._found[key])

    def _calls(self, gathered: int, added: int) -> Call:
        given = torch.zeros(gathered, dtype=torch.uint8, device=self.device)
        parts = given.new_empty(gathered * self.group.size)
        sums = torch.zeros(added // 4, device=self.device)

        def call() -> None:
            gather_into(parts, given)
            if added:
                dist.all_reduce(sums)

        return call


def _exchanged_bytes(case: Case, pass_: PassName) -> tuple[int, int]:
    """Return the bytes that a rank gathers (rows' terms) and sums (linear losses' gradients).

    They are those of float32 at least.
    """
    shape, item_bytes = case.shapes[case.spec.names[0]], max(case.item_bytes, 4)
    # The fewest numbers for a row: the maximum of the logits, the sum of exponentials and the
    # target's logit; for two sets of logits two of each, and a common sum.
    terms = 5 if case.loss.endswith("kl_divergence") else 3
    terms += bool(case.params.get("label_smoothing"))
    sums = case.spec.unit == HIDDEN_STATE and pass_ == FORWARD_BACKWARD
    return shape[0] * terms * item_bytes, math.prod(shape) * item_bytes * sums
