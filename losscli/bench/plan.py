"""What a config asks to be timed, in order. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from losscli.cases import Case, excluded, expand
from losscli.config.schema import DEVICE, Config, Timing


@dataclass(frozen=True)
class Task:
    """One case, and the implementations to be timed side by side in each pass."""

    case: Case
    passes: Mapping[str, tuple[str, ...]]
    timing: Timing
    mode: str = DEVICE
    """How it is called and timed, one of ``timing.mode``."""
    loosened: float | None = None
    """ULP that the config grants this case by name."""
    table: str = ""
    """Title of the config's table that the case belongs to."""

    def __len__(self) -> int:
        """Return the number of results that the task ends in."""
        return sum(len(names) for names in self.passes.values())


def plan(config: Config, device: str) -> list[Task]:
    """Return the tasks of a config on a device that is no longer ``auto``."""
    return [task for block in config.blocks for task in _plan(block, device)]


def _plan(config: Config, device: str) -> list[Task]:
    """Return the tasks of one table."""
    loosened = {tolerance.case: tolerance.ulp for tolerance in config.tolerances}
    tasks = []
    for case in expand(config, device):
        passes = {
            pass_: tuple(
                name
                for name in config.implementations
                if not excluded(config.exclude, case, name, pass_)
            )
            for pass_ in config.passes
        }
        passes = {pass_: names for pass_, names in passes.items() if names}
        for mode in config.timing.mode if passes else ():
            ulp = loosened.get(case.name)
            tasks.append(Task(case, passes, config.timing, mode, ulp, config.title))
    return tasks
