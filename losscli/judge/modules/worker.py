"""A module of any signature in a worker, as the judge asks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from losscli.implementations import remote
from losscli.implementations.files import UserFile
from losscli.implementations.sandbox.methods import (
    Argument,
    ArgumentFacts,
    ModuleAnswer,
    ModuleCall,
    ModuleSamples,
    Patch,
    WarmData,
)

AS_MADE = ""
"""The dtype of a module that is left as the file makes it."""


@dataclass(frozen=True)
class ModuleWorker:
    """The candidate, or the reference. All methods raise SubjectError."""

    file: UserFile
    device: str

    def _ask(self, method: str, *arguments: Any) -> Any:
        return remote.workers.of(self.file, self.device).ask(method, *arguments, case=None)

    @property
    def isolation(self) -> tuple[str, ...]:
        """What the worker is closed in by."""
        return remote.workers.of(self.file, self.device).reached

    def facts(self) -> list[ArgumentFacts]:
        """Return what the arguments that ``get_inputs`` gives are like."""
        facts: list[ArgumentFacts] = self._ask("argument_facts")
        return facts

    def make(self, dtype: str, seed: int) -> dict[str, Tensor]:
        """Make the module, cast to a dtype unless that is empty; return its state."""
        state: dict[str, Tensor] = self._ask("module_made", dtype, seed)
        return state

    def load(self, dtype: str, state: dict[str, Tensor]) -> None:
        """Give the module the parameters and buffers of another."""
        self._ask("module_loaded", dtype, state)

    def answer(
        self, arguments: Sequence[Argument], incoming: Tensor | None, dtype: str = AS_MADE
    ) -> ModuleAnswer:
        """Return the result, with gradients for an incoming one."""
        call = ModuleCall(list(arguments), incoming, dtype)
        answer: ModuleAnswer = self._ask("module_answer", call)
        return answer

    def prepare(self, call: ModuleCall) -> None:
        """Prepare a call to be timed, on contents that the worker then keeps."""
        self._ask("module_timed", call)

    def warm_up(self) -> WarmData:
        """Warm the call up that was prepared last."""
        warm: WarmData = self._ask("module_warm_up")
        return warm

    def samples(self, patches: Sequence[Patch], keep: int) -> ModuleSamples:
        """Take a sample after each patch; return the answer of sample ``keep``; -1 is none."""
        found: ModuleSamples = self._ask("module_samples", list(patches), keep)
        return found

    def looped(self, calls: int) -> None:
        """Make so many calls, and wait for all of them."""
        self._ask("module_looped", calls)

    def leftovers(self) -> list[str]:
        """Name the processes that are left running."""
        left: list[str] = self._ask("leftovers")
        return left
