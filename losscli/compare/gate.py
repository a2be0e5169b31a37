"""The conditions that fail a comparison: a slower, a missing or an undecided row."""

from __future__ import annotations

from dataclasses import dataclass

from losscli.implementations import is_own


@dataclass(frozen=True)
class Gate:
    """The options of `losscli compare` that decide its exit code."""

    threshold: float | None = None
    """``--fail-on``: a row fails that is slower by more than this fraction."""
    missing: bool | None = None
    """``--fail-on-missing``: rows of the baseline have to be timed again. None is the default:
    where there is a threshold, the rows of losscli's own implementations have to be."""
    undecided: bool | None = None
    """``--fail-on-undecided``: noise must not hide a slowdown by the threshold. None as above."""

    @property
    def minds_missing(self) -> bool:
        """Whether a missing row of any implementation fails."""
        return self.threshold is not None if self.missing is None else self.missing

    @property
    def minds_undecided(self) -> bool:
        """Whether an undecided row of any implementation fails."""
        return self.threshold is not None and self.undecided is not False

    def fails_on_missing(self, implementation: str) -> bool:
        """Tell whether a missing row of this implementation fails."""
        return self.minds_missing and (self.missing is True or is_own(implementation))

    def fails_on_undecided(self, implementation: str) -> bool:
        """Tell whether an undecided row of this implementation fails."""
        return self.minds_undecided and (self.undecided is True or is_own(implementation))


NO_GATE = Gate()
"""Nothing fails."""
