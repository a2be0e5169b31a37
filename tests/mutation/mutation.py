"""What a mutation is."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutation:
    """One textual change, and what of `losscli verify` is enough to see it.

    The kernels are compiled once a loss, some of those of CUDA once a loss and dtype: only those
    named here are built anew and verified; the others stay as they were.
    """

    file: str
    """Under csrc."""
    old: str
    """Stands in the file once, or the first of several is meant."""
    new: str
    mistake: str
    losses: tuple[str, ...] = ("smooth_l1",)
    dtypes: tuple[str, ...] = ("float32",)
    implementations: tuple[str, ...] = ("custom",)
    sizes: tuple[str, ...] = ()
    """In place of those of the device's trial."""
    checks: tuple[str, ...] = ()
    """All where none is given."""
    equivalent: str = ""
    """Why no input tells it from the original; empty where one does."""
    unseen: str = ""
    """Why `losscli verify` does not see it, and who does; empty where it does."""

    @property
    def name(self) -> str:
        """The file and the mistake."""
        return f"{self.file}, {self.mistake}"

    def apply(self, csrc: Path) -> None:
        """Change a copy of the sources, without a trace in the time of its last change."""
        path = csrc / self.file
        text, before = path.read_text(), path.stat()
        assert self.old in text, f"{self.file} has no {self.old!r}"
        path.write_text(text.replace(self.old, self.new, 1))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
