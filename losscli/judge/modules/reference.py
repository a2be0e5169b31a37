"""The ``Model`` that a candidate is judged against: its facts, its truth, and its own error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from losscli.errors import LosscliError
from losscli.implementations import remote
from losscli.implementations.errors import SubjectError
from losscli.implementations.files import REFERENCE_MODULE, read_file
from losscli.implementations.sandbox.methods import Argument, ArgumentFacts, ModuleAnswer
from losscli.judge.modules.worker import AS_MADE, ModuleWorker
from losscli.judge.recognition import WrongReferenceError

DOUBLE = "float64"
SAME = 1e-9
"""Relative distance of two answers in float64 to the same arguments."""


@dataclass(frozen=True)
class Truth:
    """What is due for a call."""

    answer: ModuleAnswer
    """In float64."""
    own: ModuleAnswer
    """Of the reference in the candidate's dtype: its shape, dtype and device are due as well."""


@dataclass
class Reference:
    """The reference, in a worker of its own.

    All methods raise WrongReferenceError, with the reference's own words.
    """

    worker: ModuleWorker
    state: dict[str, Tensor] = field(default_factory=dict)
    """Parameters and buffers, which a candidate gets as well."""

    @classmethod
    def of(cls, file: str, device: str) -> Reference:
        """Read the file, whose worker is never the candidate's."""
        named = file if read_file(file).name else f"{file}:{REFERENCE_MODULE}"
        read = read_file(named)
        return cls(ModuleWorker(replace(read, named=f"reference {named}"), device))

    @property
    def name(self) -> str:
        """The file with the name of the module."""
        return self.worker.file.named.removeprefix("reference ")

    @property
    def died(self) -> bool:
        """Whether its process has ended."""
        return any(worker.died for worker in remote.workers.known(self.worker.file))

    def end(self) -> None:
        """End its worker."""
        remote.workers.end(self.worker.file)

    def start(self, seed: int, dtypes: Sequence[str]) -> list[ArgumentFacts]:
        """Make it in float64 and in each dtype; return what its arguments are like."""
        with self._blamed():
            facts = self.worker.facts()
            self.state = self.worker.make(AS_MADE, seed)
            for dtype in (DOUBLE, *dtypes):
                self.worker.make(dtype, seed)
                self.worker.load(dtype, self.state)
        if not any(_is_floating(each) for each in facts):
            raise WrongReferenceError(
                f"the reference {self.name}: get_inputs gives no floating tensor"
            )
        return facts

    def output(self, arguments: Sequence[Argument], dtype: str) -> Tensor:
        """Return the result in the candidate's dtype."""
        with self._blamed():
            return self.worker.answer(arguments, None, dtype).output

    def truth(self, arguments: Sequence[Argument], incoming: Tensor, dtype: str) -> Truth:
        """Return what is due."""
        with self._blamed():
            answer = self.worker.answer(arguments, incoming, DOUBLE)
            own = self.worker.answer(arguments, incoming, dtype)
        for each in (answer, own):
            if not each.trains or not any(g is not None for g in each.gradients.values()):
                raise WrongReferenceError(
                    f"the reference {self.name} cannot be differentiated: its result has no "
                    "gradient"
                )
        if answer.output.dtype != torch.float64:
            raise WrongReferenceError(
                f"the reference {self.name} gives {answer.output.dtype} in float64"
            )
        return Truth(answer, own)

    def check(self, arguments: Sequence[Argument], incoming: Tensor, dtype: str) -> None:
        """Find out whether it can be a truth: it gives finite numbers, the same again."""
        first, second = (self.truth(arguments, incoming, dtype).answer for _ in range(2))
        if not bool(first.output.isfinite().any()):
            raise WrongReferenceError(
                f"the reference {self.name} gives no finite number on inputs like those of its "
                "get_inputs"
            )
        if not torch.allclose(first.output, second.output, SAME, 0.0, equal_nan=True):
            raise WrongReferenceError(
                f"the reference {self.name} gives different results for the same inputs"
            )

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """Turn what goes wrong into an error of the reference."""
        try:
            yield
        except (SubjectError, LosscliError) as error:
            raise WrongReferenceError(f"the reference {self.name} {error}") from None


def _is_floating(facts: ArgumentFacts) -> bool:
    return facts.shape is not None and getattr(torch, facts.dtype).is_floating_point
