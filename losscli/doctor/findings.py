"""The result of a probe: a fact, its state, and advice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Literal, NamedTuple

from losscli.doctor.machine import Machine
from losscli.errors import LosscliError
from losscli.files.record import CommandRecord, Record

State = Literal["ok", "warning", "problem"]
OK: Final = "ok"
WARNING: Final = "warning"
"""The device works, but something else does not, or times cannot be trusted."""
PROBLEM: Final = "problem"
ELSE = "Correct that, or choose another --device."
STATES: tuple[State, ...] = (OK, WARNING, PROBLEM)


class Observation(NamedTuple):
    """The answer of a probe."""

    state: State
    found: str
    advice: str = ""


ok, warning, problem = (partial(Observation, state) for state in STATES)


def refusal(error: LosscliError, state: State = PROBLEM) -> Observation:
    """Split an error of losscli into what is wrong and what to do."""
    found, _, advice = str(error).partition(". ")
    return Observation(state, found.removesuffix("."), advice or ELSE)


class Finding(Record, frozen=True):
    """One line of the report."""

    area: str
    name: str
    state: State
    found: str
    advice: str


@dataclass(frozen=True)
class Probe:
    """Finds one fact."""

    area: str
    name: str
    look: Callable[[Machine], Observation | None]
    """Returns None if the fact does not concern this machine or device."""
    refuse: Callable[[Machine, LosscliError], Observation] = lambda machine, error: refusal(error)
    """The answer if looking raised an error."""
    of_gpu: bool = False
    """Whether it is a fact about the GPU, if that is the device."""

    def find(self, machine: Machine) -> Finding | None:
        """Return the finding; a probe that fails is a warning."""
        try:
            answer = None if self.of_gpu and not machine.has_gpu else self.look(machine)
        except LosscliError as error:
            answer = self.refuse(machine, error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            advice = "If no other line explains it, report it with what --json writes."
            answer = warning(f"unknown, because the probe failed: {reason}", advice)
        return None if answer is None else Finding(self.area, self.name, *answer)


class Examination(CommandRecord, frozen=True, kw_only=True):
    """All findings about one device."""

    kind: Literal["doctor"] = "doctor"
    asked_device: str
    device: str
    results: Sequence[Finding]

    derived: ClassVar[Mapping[str, str]] = {"device": "usable", "usable": "counts"}

    @property
    def usable(self) -> bool:
        """Whether the device can be used."""
        return not self.count(PROBLEM)

    def count(self, state: State) -> int:
        """Return the number of findings in a state."""
        return sum(finding.state == state for finding in self.results)

    @property
    def counts(self) -> dict[State, int]:
        """The number of findings in each state."""
        return {state: self.count(state) for state in STATES}
