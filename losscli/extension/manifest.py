"""The manifest of a finished library: tells whether it is whole, and what it was built for.

Size and digest are checked at every load. SHA-256 took 1.1 ms a MB on a CPU with instructions for
it; operators (360 KB) and a loss's CPU kernels (220 KB) take 0.7 ms together, once a process.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """One finished library."""

    library: str
    """Its file name."""
    bytes: int
    sha256: str
    portable: str
    """The key of everything that decides the outcome except the compiler."""
    cuda: str | None = None
    """Version of nvcc."""
    gencode: tuple[str, ...] = ()
    """For which GPUs nvcc compiled."""

    def write(self, folder: Path) -> None:
        """Write it into the library's folder."""
        (folder / NAME).write_text(json.dumps(asdict(self), indent=1) + "\n")

    def damage(self, folder: Path) -> str | None:
        """Return the damage of the library beside it, or None."""
        path = folder / self.library
        try:
            size = path.stat().st_size
            if size != self.bytes:
                return f"{size:,} of {self.bytes:,} bytes are present"
            return (
                None
                if digest(path) == self.sha256
                else "its content has changed since it was built"
            )
        except OSError as error:
            return f"{self.library} cannot be read: {error.strerror}"


def read(folder: Path) -> Manifest | None:
    """Read the manifest in a folder; None where it is missing or is none."""
    try:
        found = json.loads((folder / NAME).read_text())
        return Manifest(**{**found, "gencode": tuple(found["gencode"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
