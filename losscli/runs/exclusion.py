"""What a rule of the config left out of a run."""

from __future__ import annotations

from losscli.record import Record


class Exclusion(Record, frozen=True):
    """A rule of the config's ``exclude`` that left rows out."""

    rule: str
    """As a config has it: ``{device: cpu, implementation: compile}``."""
    rows: int
    """Cases, passes and implementations that it left out."""
    reason: str = ""
    """Which the config gives."""

    def __str__(self) -> str:
        """Return a line for people."""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        why = f": {self.reason}" if self.reason else ""
        return f"excluded {rows} by the config's rule {self.rule}{why}"
