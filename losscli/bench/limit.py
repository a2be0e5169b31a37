"""The memory limit: the time of kernels that only move bytes, measured as implementations are.

The limit of a pass is the time of its necessary reads and writes of whole arrays. An operand that
is smaller than the prediction (a row that repeats, for example) stays in the cache and is left out
of these arrays; its bytes count all the same. All arrays are contiguous and as large as the
prediction: for a view the arrays use the memory behind the view, and where the target has another
dtype the time is scaled by the bytes. Where forward reads a few elements of the prediction alone,
one array of as many bytes as it has to move is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import torch

import losscli.functional  # noqa: F401 - defines the operators
from losscli.axes import CONTIGUOUS, PassName
from losscli.bench.sampling import Contender, interleave
from losscli.bench.statistics import summarize
from losscli.cases import Case
from losscli.config.schema import Timing
from losscli.errors import LosscliError
from losscli.implementations.errors import first_line
from losscli.implementations.timer import Timer
from losscli.losses import MODEL
from losscli.machine import memory
from losscli.operators import loading

if TYPE_CHECKING:
    from torch import Tensor

TIMED = Timing(min_time=0.05, max_time=0.2)
"""How long the variants of a probe are sampled, whatever the timing of a case."""
RANKED = Timing(min_time=0.0, max_time=0.05)
"""The same where the fastest variant is timed again, in the rounds of the case."""


class Mix(NamedTuple):
    """Arrays of the prediction's size that one launch reads and writes."""

    reads: int
    writes: int


@dataclass(frozen=True)
class Limit:
    """The time in which the bytes of a pass can be moved."""

    seconds: float | None = None
    reason: str = ""
    """Why the limit is unknown."""


class BandwidthProbe(NamedTuple):
    """The op that only moves bytes, and the number of its variants on a device."""

    move: Callable[[Sequence[Tensor], Sequence[Tensor], int], object]
    variants: int


def load_probe(device: str) -> BandwidthProbe:
    """Return the probe of a device, building it if it is missing."""
    loading.load_probe(device.partition(":")[0])
    operators = torch.ops.losscli_bench
    variants = operators.memory_probe_variants(torch.device(device))
    return BandwidthProbe(operators.memory_probe.default, variants)


def mixes(case: Case, pass_: PassName) -> tuple[Mix, ...]:
    """Return the launches that a pass needs at least.

    Without a reduction the incoming gradient is known only when the loss is there, so that the
    operands are read twice.
    """
    if case.spec.picks:
        return (Mix(1, 0) if pass_ == "forward" else Mix(0, 1),)
    operands = case.large_operands
    if case.reduction != "none":
        return (Mix(operands, int(pass_ == "forward_backward")),)
    large = int(math.prod(case.unreduced_shape) == case.elements)  # the loss, and what comes in
    forward = Mix(operands, large)
    return (forward,) if pass_ == "forward" else (forward, Mix(operands + large, 1))


_Key = tuple[tuple[Mix, ...], int, Timer]


class Limits:
    """Measures limits on one device and remembers them."""

    def __init__(
        self, device: str, load_probe: Callable[[str], BandwidthProbe] = load_probe
    ) -> None:
        """``load_probe`` loads the machine's probe, or a test's fake."""
        self.device, self.load_probe = device, load_probe
        self.probe: BandwidthProbe | None = None
        self.missing = ""
        self.found: dict[_Key, Limit] = {}
        self.fastest: dict[_Key, int] = {}

    def find(
        self,
        case: Case,
        pass_: PassName,
        timer: Timer,
        reads: Sequence[Tensor],
        again: bool = False,
        timing: Timing = TIMED,
    ) -> Limit:
        """Return the limit of a pass.

        Args:
            case: whose bytes are moved.
            pass_: of the case.
            timer: that the implementations are timed with.
            reads: the operands and, where there is one, the incoming gradient, to be read.
            again: measure it once more, and keep the faster of the two.
            timing: when to stop sampling the variants.
        """
        if case.elements == 0 or case.spec.unit == MODEL:  # which may read less than all
            return Limit()
        key, arrays = _what(case, pass_, timer, reads)
        known = self.found.get(key)
        if (again or not known) and self._load():
            found, variant = self._measure(key, arrays, case.seed, timing)
            if not known or faster(known, found) is found:
                self.found[key], self.fastest[key] = found, variant
        found = self.found.get(key) or Limit(reason=self.missing)
        return scaled(found, case, pass_)

    def contender(
        self, case: Case, pass_: PassName, timer: Timer, reads: Sequence[Tensor]
    ) -> Contender | None:
        """Return the probe of a pass, to be sampled in the same rounds as the implementations.

        None where there is no limit.
        """
        if case.elements == 0 or case.spec.unit == MODEL:  # which may read less than all
            return None
        key, arrays = _what(case, pass_, timer, reads)
        known = self.found.get(key)
        if known is None or known.seconds is None:
            return None
        call = self._calls(key[0], arrays)(self.fastest[key])
        return Contender("", call, awaited=False)

    def _load(self) -> bool:
        """Load the probe, once; tell whether it is there."""
        if self.probe is None and not self.missing:
            try:
                self.probe = self.load_probe(self.device)
            except (LosscliError, RuntimeError) as error:
                self.missing = first_line(error).rstrip(".")
        return self.probe is not None

    def _calls(
        self, launches: Sequence[Mix], arrays: Sequence[Tensor]
    ) -> Callable[[int], Callable[[], None]]:
        """Return a maker of the call of a variant; all variants write the same memory."""
        assert self.probe
        move = self.probe.move
        written = [
            torch.empty(arrays[0].nbytes, dtype=torch.uint8, device=self.device)
            for _ in range(max(mix.writes for mix in launches))
        ]
        steps = [(list(arrays[: mix.reads]), written[: mix.writes]) for mix in launches]

        def call(variant: int) -> Callable[[], None]:
            def run() -> None:
                for reads, writes in steps:
                    move(reads, writes, variant)

            return run

        return call

    def _measure(
        self, key: _Key, arrays: Sequence[Tensor], seed: int, timing: Timing
    ) -> tuple[Limit, int]:
        """Time the variants side by side; return the limit, which is the fastest, and its index."""
        assert self.probe
        launches, _, timer = key
        try:
            call = self._calls(launches, arrays)
        except Exception as error:
            if not memory.is_out_of_memory(error):
                raise
            return _out_of_reach(error), 0
        contenders = [Contender(str(n), call(n)) for n in range(self.probe.variants)]
        contenders[0].warm_up(timer)
        warm = contenders[0].warm  # what it teaches of the host holds for all
        for contender in contenders if warm else ():
            contender.run(contender.call)
            contender.warm = warm and replace(warm, call=contender.call, name=contender.name)
        interleave(timer, contenders, timing, seed=seed)
        failure = next((c.failure for c in contenders if c.failure), None)
        if failure:
            return _out_of_reach(failure), 0
        medians = [summarize(contender.samples).median for contender in contenders]
        return Limit(min(medians)), medians.index(min(medians))


def scaled(limit: Limit, case: Case, pass_: PassName) -> Limit:
    """Return the limit of a case's own bytes, from that of arrays that are all of one dtype."""
    if limit.seconds is None or not case.mixes_dtypes:
        return limit
    alike = msgspec.structs.replace(case, layout=CONTIGUOUS)
    share = case.floor_bytes(pass_) / alike.floor_bytes(pass_)
    return replace(limit, seconds=limit.seconds * share)


def faster(one: Limit, other: Limit) -> Limit:
    """Return the limit with the shorter time, the first of equals."""
    return min((one, other), key=lambda limit: limit.seconds or math.inf)


def _what(
    case: Case, pass_: PassName, timer: Timer, reads: Sequence[Tensor]
) -> tuple[_Key, list[Tensor]]:
    """Return the key of a limit, and the arrays to be read."""
    whole = not (case.spec.picks and pass_ == "forward")
    count = case.elements * case.item_bytes if whole else case.floor_bytes(pass_)
    arrays = [_array(tensor, count) for tensor in reads if tensor.numel() == case.elements]
    return (mixes(case, pass_), count, timer), arrays


def _array(tensor: Tensor, count: int) -> Tensor:
    """Return ``count`` bytes to read for an operand: its own memory if large enough."""
    if tensor.is_contiguous() and tensor.nbytes == count:
        return tensor.detach()
    storage = tensor.untyped_storage()
    if storage.nbytes() < count:
        return torch.zeros(count, dtype=torch.uint8, device=tensor.device)
    array = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return array.set_(storage, 0, (count,), (1,))


def _out_of_reach(error: Exception) -> Limit:
    """Return why a limit was not measured."""
    if memory.is_out_of_memory(error) and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return Limit(reason=first_line(error).rstrip("."))
