from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from losscli.losses import ROW_FORMS, operators_for
from tests.machinery import MACHINERY


@dataclass(frozen=True)
class Mutation:
    """One textual change, and the part of `losscli verify` that suffices to notice it.

    Kernels are compiled once a loss, some of CUDA's once a loss and dtype: only those named here
    are rebuilt and verified; the others stay.
    """

    file: str
    """Under csrc."""
    old: str
    """The text to replace; of several the first."""
    new: str
    mistake: str
    losses: tuple[str, ...] = ("smooth_l1",)
    dtypes: tuple[str, ...] = ("float32",)
    implementations: tuple[str, ...] = ("custom",)
    sizes: tuple[str, ...] = ()
    """Sizes that replace those of the device's trial."""
    checks: tuple[str, ...] = ()
    """All where none is given."""
    equivalent: str = ""
    """The reason that no input distinguishes it from the original; empty if one does."""
    unseen: str = ""
    """The reason that `losscli verify` does not find it, and the test that does; or empty."""

    @property
    def name(self) -> str:
        return f"{self.file}, {self.mistake}"

    @property
    def losses_of_survivor(self) -> tuple[str, ...]:
        """The losses for an unexpected survivor: they reach every loop, and its own.

        A row-wise loss comes with all its forms, which have the same kernels.
        """
        rows = {operators_for(loss) for loss in self.losses if loss in ROW_FORMS}
        if rows:
            return tuple(form for form in ROW_FORMS if operators_for(form) in rows)
        return tuple(dict.fromkeys((*MACHINERY, *self.losses)))

    def apply(self, csrc: Path) -> None:
        """Change a copy of the sources, and keep the file's modification time."""
        path = csrc / self.file
        text, before = path.read_text(), path.stat()
        assert self.old in text, f"{self.file} has no {self.old!r}"
        path.write_text(text.replace(self.old, self.new, 1))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
