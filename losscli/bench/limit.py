"""The limit of a pass: the time of what it cannot do without, measured like an implementation.

Linear losses are limited by their bare matrix products, all others by memory: by kernels that only
read and write whole contiguous arrays as large as the prediction. A smaller operand stays in the
cache: it has no array, but its bytes count. For a view the arrays use its storage. Where forward
reads a few elements of the prediction, one array of that many bytes is read.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import NamedTuple

import msgspec
import torch
from torch import Tensor

import losscli.functional  # noqa: F401 - defines the operators
from losscli.bench.sampling import Contender, interleave
from losscli.bench.statistics import summarize
from losscli.cases.axes import CONTIGUOUS, FORWARD_BACKWARD, PassName
from losscli.cases.case import Case
from losscli.config.schema import Timing
from losscli.errors import LosscliError, first_line
from losscli.implementations.timer import Timer
from losscli.losses import MODEL
from losscli.machine import memory
from losscli.operators import loading

TIMED = Timing(min_time=0.05, max_time=0.2)
"""The timing of a probe's variants, independent of a case's timing."""
RANKED = Timing(min_time=0.0, max_time=0.05)
"""The same where the fastest variant is timed again in the case's rounds."""


class Mix(NamedTuple):
    """Arrays of the prediction's size that one launch reads and writes."""

    reads: int
    writes: int


@dataclass(frozen=True)
class Limit:
    """The time of a probe's fastest variant."""

    seconds: float | None = None
    reason: str = ""
    variant: int = 0


class BandwidthProbe(NamedTuple):
    """The op that only moves bytes, and its number of variants on a device."""

    move: Callable[[Sequence[Tensor], Sequence[Tensor], int], object]
    variants: int


def _load_probe(device: str) -> BandwidthProbe:
    loading.load_probe(device.partition(":")[0])
    operators = torch.ops.losscli_bench
    variants = operators.memory_probe_variants(torch.device(device))
    return BandwidthProbe(operators.memory_probe.default, variants)


def mixes(case: Case, pass_: PassName) -> tuple[Mix, ...]:
    """Return the launches that a pass needs at least."""
    if case.spec.picks:
        return (Mix(1, 0) if pass_ == "forward" else Mix(0, 1),)
    # Those as large as the prediction, including itself.
    operands = sum(math.prod(shape) == case.elements for shape in case.shapes.values())
    if case.reduction != "none":
        return (Mix(operands, int(pass_ == "forward_backward")),)
    # Without a reduction grad_output comes after the loss, so operands are read twice.
    large = int(math.prod(case.unreduced_shape) == case.elements)  # the loss and grad_output
    forward = Mix(operands, large)
    return (forward,) if pass_ == "forward" else (forward, Mix(operands + large, 1))


_Key = tuple[object, ...]


@dataclass
class Limits:
    """Measures limits on one device and keeps them."""

    device: str
    load_probe: Callable[[str], BandwidthProbe] = _load_probe
    _: KW_ONLY
    clock: Callable[[], float] = time.perf_counter
    probe: BandwidthProbe | None = None
    missing: str = ""
    """Why there is no probe."""
    found: dict[_Key, Limit] = field(default_factory=dict)

    def find(
        self,
        case: Case,
        pass_: PassName,
        timer: Timer,
        reads: Sequence[Tensor],
        again: bool = False,
        timing: Timing = TIMED,
    ) -> Limit:
        """Return a pass's limit, timed on ``reads``; ``again`` keeps the faster of two."""
        if not _is_limited(case):
            return Limit()
        key = _key(case, pass_, timer)
        known = self.found.get(key)
        if (again or not known) and (case.operations(pass_) or self._load()):
            found = self._measure(case, pass_, timer, reads, timing)
            self.found[key] = faster(known, found) if known else found
        return scaled(self.found.get(key) or Limit(reason=self.missing), case, pass_)

    def contender(
        self, case: Case, pass_: PassName, timer: Timer, reads: Sequence[Tensor]
    ) -> Contender | None:
        """Return a pass's probe, to sample with the implementations; None without a limit."""
        known = self.found.get(_key(case, pass_, timer)) if _is_limited(case) else None
        if known is None or known.seconds is None:
            return None
        try:
            return Contender("", self._calls(case, pass_, reads)[known.variant], awaited=False)
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            return None

    def _load(self) -> bool:
        if self.probe is None and not self.missing:
            try:
                self.probe = self.load_probe(self.device)
            except (LosscliError, RuntimeError) as error:
                self.missing = first_line(error).rstrip(".")
        return self.probe is not None

    def _calls(
        self, case: Case, pass_: PassName, reads: Sequence[Tensor]
    ) -> list[Callable[[], None]]:
        """Return each variant's call."""
        if case.operations(pass_):
            return [products(pass_, reads[0].detach(), reads[2].detach())]
        assert self.probe
        move, launches, count = self.probe.move, mixes(case, pass_), _bytes_of_array(case, pass_)
        arrays = [_array(tensor, count) for tensor in reads if tensor.numel() == case.elements]
        empty = partial(torch.empty, arrays[0].nbytes, dtype=torch.uint8, device=self.device)
        written = [empty() for _ in range(max(mix.writes for mix in launches))]
        steps = [(list(arrays[: mix.reads]), written[: mix.writes]) for mix in launches]

        def run(variant: int) -> None:
            for reads, writes in steps:
                move(reads, writes, variant)

        return [partial(run, variant) for variant in range(self.probe.variants)]

    def _measure(
        self, case: Case, pass_: PassName, timer: Timer, reads: Sequence[Tensor], timing: Timing
    ) -> Limit:
        try:
            calls = self._calls(case, pass_, reads)
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            return _out_of_reach(error)
        contenders = [Contender(str(n), call) for n, call in enumerate(calls)]
        contenders[0].warm_up(timer)
        warm = contenders[0].warm  # its host time holds for all variants
        for contender in contenders if warm else ():
            contender.run(contender.call)
            contender.warm = warm and replace(warm, call=contender.call, name=contender.name)
        interleave(timer, contenders, timing, seed=case.seed, clock=self.clock)
        if failure := next((c.failure for c in contenders if c.failure), None):
            return _out_of_reach(failure)
        medians = [summarize(contender.samples).median for contender in contenders]
        return Limit(min(medians), variant=medians.index(min(medians)))


def scaled(limit: Limit, case: Case, pass_: PassName) -> Limit:
    """Scale the limit of arrays of one dtype to the case's own bytes."""
    if limit.seconds is None or not case.mixes_dtypes:
        return limit
    alike = msgspec.structs.replace(case, layout=CONTIGUOUS)
    share = case.floor_bytes(pass_) / alike.floor_bytes(pass_)
    return replace(limit, seconds=limit.seconds * share)


def faster(one: Limit, other: Limit) -> Limit:
    """Return the limit with the shorter time, the first of equals."""
    return min((one, other), key=lambda limit: limit.seconds or math.inf)


def products(pass_: PassName, hidden: Tensor, weight: Tensor) -> Callable[[], None]:
    """Return a call of a pass's bare matrix products, which reuses its outputs."""
    logits = hidden.new_empty((len(hidden), len(weight)))
    gradients = [*map(torch.empty_like, (hidden, weight))] if pass_ == FORWARD_BACKWARD else None

    def run() -> None:
        torch.mm(hidden, weight.t(), out=logits)
        if gradients:
            torch.mm(logits, weight, out=gradients[0])
            torch.mm(logits.t(), hidden, out=gradients[1])

    return run


def _is_limited(case: Case) -> bool:
    return case.elements > 0 and case.spec.unit != MODEL


def _key(case: Case, pass_: PassName, timer: Timer) -> _Key:
    if case.operations(pass_):
        return pass_, case.shape, case.dtype, timer
    return mixes(case, pass_), _bytes_of_array(case, pass_), timer


def _bytes_of_array(case: Case, pass_: PassName) -> int:
    whole = not (case.spec.picks and pass_ == "forward")
    return case.elements * case.item_bytes if whole else case.floor_bytes(pass_)


def _array(tensor: Tensor, count: int) -> Tensor:
    """Return ``count`` bytes to read for an operand: its own memory if large enough."""
    if tensor.is_contiguous() and tensor.nbytes == count:
        return tensor.detach()
    storage = tensor.untyped_storage()
    if storage.nbytes() < count:
        return torch.zeros(count, dtype=torch.uint8, device=tensor.device)
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage, 0, (count,), (1,))


def _out_of_reach(error: Exception) -> Limit:
    if memory.is_out_of_memory(error) and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return Limit(reason=first_line(error).rstrip("."))
