"""Times a candidate beside the reference: eager, in the same dtype, on the same contents.

The judge draws new rows before each sample, and judges the answers of random samples. Its own clock
times a loop of calls, and is compared with the candidate's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from losscli.bench.ratios import paired_ratios
from losscli.bench.remote import LARGEST_FLIP_BYTES, QUIET_SECONDS, disagreement
from losscli.bench.statistics import summarize
from losscli.implementations.sandbox.methods import (
    Argument,
    ArgumentFacts,
    ModuleAnswer,
    ModuleCall,
    Patch,
)
from losscli.judge.modules import inputs as module_inputs
from losscli.judge.modules.reference import Reference, Truth
from losscli.judge.modules.worker import ModuleWorker
from losscli.judge.parts import ReasonCode, Speed
from losscli.runs.records import Speedup

CANDIDATE, REFERENCE = "candidate", "reference"
QUICK_SECONDS = (0.1, 0.6)
SECONDS = (0.4, 3.0)
"""The least and the most that the batches of both take."""
PRECISE = 0.02
"""Half the interval of the ratio, relative to it, with which no more batches are taken."""
BATCH_SECONDS = 0.02
LARGEST_BATCH = 20
ROUNDS = 3
JUDGED_EVERY = 10
"""Batches of which one, at random, has an answer judged; the first and the last have one always."""

Compare = Callable[[Sequence[ArgumentFacts], ModuleAnswer, Truth], dict[str, str]]


class ModuleTiming:
    """One pass of one case. It raises SubjectError where the candidate does."""

    def __init__(
        self,
        candidate: ModuleWorker,
        reference: Reference,
        facts: Sequence[ArgumentFacts],
        arguments: list[Argument],
        incoming: Tensor | None,
        dtype: str,
        generator: torch.Generator,
        compare: Compare,
    ) -> None:
        """``incoming`` is None for a forward pass alone."""
        self.candidate, self.reference = candidate, reference
        self.facts, self.arguments, self.incoming, self.dtype = facts, arguments, incoming, dtype
        self.generator, self.compare = generator, compare
        self.workers = {CANDIDATE: candidate, REFERENCE: reference.worker}
        self.samples: dict[str, list[float]] = {CANDIDATE: [], REFERENCE: []}
        self.troubles: list[tuple[ReasonCode, str]] = []
        self.extra_bytes: int | None = None
        self.random = random.SystemRandom()

    def run(self, *, quick: bool) -> None:
        """Take samples until the ratio is known, or the time is over."""
        call = ModuleCall(self.arguments, self.incoming, self.dtype)
        host: dict[str, float] = {}
        for name, worker in self.workers.items():
            worker.prepare(call)
            warm = worker.warm_up()
            host[name] = warm.host_seconds
            if name == CANDIDATE:
                self.extra_bytes = warm.peak_extra_bytes
        slowest = max(*host.values(), 1e-9)
        count = max(1, min(int(BATCH_SECONDS / slowest), LARGEST_BATCH))
        least, most = QUICK_SECONDS if quick else SECONDS
        start, rounds = time.perf_counter(), 0
        while not self.troubles:
            self._round(count, judged=not rounds or not self.random.randrange(JUDGED_EVERY))
            rounds += 1
            taken = time.perf_counter() - start
            known = rounds >= ROUNDS and taken >= least and self._precise()
            if known or taken >= most:
                break
        if not self.troubles:
            median = summarize(self.samples[CANDIDATE]).median
            if told := disagreement(
                self.candidate.looped,
                self.candidate.device.partition(":")[0],
                median,
                host[CANDIDATE],
            ):
                self.troubles.append(("clock_disagrees", str(told)))
            self._round(1, judged=True)  # after all those calls

    @property
    def ratio(self) -> Speedup:
        """How many times as fast as the reference the candidate is."""
        return paired_ratios(self.samples)[CANDIDATE][REFERENCE]

    def speed(self, case: str, pass_: str) -> Speed:
        """Return the times as a verdict has them."""
        ratio, seconds = self.ratio, summarize(self.samples[CANDIDATE]).median
        ratios = {REFERENCE: (ratio.value, ratio.low, ratio.high)}
        return Speed(case, pass_, seconds, ratios, None, self.extra_bytes)

    def _precise(self) -> bool:
        ratio = self.ratio
        return ratio.confident and (ratio.high - ratio.low) / 2 <= PRECISE * ratio.value

    def _round(self, count: int, *, judged: bool) -> None:
        """Take a batch of each, in random order, on the same contents."""
        patches = [self._patch() for _ in range(count)]
        keep = self.random.randrange(count) if judged else -1
        answer: ModuleAnswer | None = None
        for name in self.random.sample(list(self.workers), len(self.workers)):
            self._quiet()
            found = self.workers[name].samples(patches, keep if name == CANDIDATE else -1)
            self.samples[name] += found.seconds
            if name == CANDIDATE:
                answer = found.answer
        for number, patch in enumerate(patches):
            self._apply(patch)
            if number == keep:
                self._judge(answer)

    def _quiet(self) -> None:
        """Wait until threads sleep that have computed just now."""
        if self.candidate.device == "cpu":
            time.sleep(QUIET_SECONDS)
        else:
            torch.cuda.synchronize(self.candidate.device)

    def _patch(self) -> Patch:
        """Choose rows of an argument, and draw their contents."""
        tensors = [n for n, a in enumerate(self.arguments) if a.tensor is not None]
        filled = [n for n in tensors if self._tensor(n).numel()] or tensors
        number = self.random.choice(filled)
        tensor, facts, device = self._tensor(number), self.facts[number], self.candidate.device
        if not tensor.dim() or not tensor.numel():
            return Patch(number, 0, module_inputs.values(facts, "usual", self.generator).to(device))
        row_bytes = max(tensor.nbytes // len(tensor), 1)
        most = max(1, min(len(tensor) // 4, LARGEST_FLIP_BYTES // row_bytes))
        start = self.random.randrange(len(tensor))
        count = min(len(tensor) - start, self.random.randint(1, most))
        rows = module_inputs.values(facts, "usual", self.generator, count)
        return Patch(number, start, rows.to(device))

    def _apply(self, patch: Patch) -> None:
        """Change the same rows here."""
        tensor = self._tensor(patch.argument)
        rows = tensor[patch.start : patch.start + len(patch.rows)] if tensor.dim() else tensor
        rows.copy_(patch.rows)

    def _judge(self, answer: ModuleAnswer | None) -> None:
        """Judge an answer, whose contents are those of this moment."""
        wrong = {"result": "there is none"}
        if answer is not None:
            contents = [
                a if a.tensor is None else Argument(a.tensor.clone()) for a in self.arguments
            ]
            incoming = self.incoming
            if incoming is None:
                incoming = torch.ones_like(self.reference.output(contents, self.dtype))
            truth = self.reference.truth(contents, incoming, self.dtype)
            if self.incoming is None:
                truth.own.gradients = {}
            wrong = self.compare(self.facts, answer, truth)
        if wrong:
            what, text = next(iter(wrong.items()))
            told = f"right when it was checked, and wrong while it was timed: {what}: {text}"
            self.troubles.append(("wrong_later", told))

    def _tensor(self, number: int) -> Tensor:
        tensor = self.arguments[number].tensor
        assert tensor is not None
        return tensor
