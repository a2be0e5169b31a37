"""The libraries that a wheel holds, which ``tools/wheel.py`` makes; nothing here writes.

::

    losscli/prebuilt/manifest.json                          facts and hashes of all
    losscli/prebuilt/liblosscli_mse_cpu.x86-64-v3.so        by variant
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from losscli.console.notes import note

from .cache import MANIFEST, Manifest, portable_key
from .plan import Plan
from .variants import as_numbers, glibc

FOLDER = Path(__file__).parents[1] / "prebuilt"


@dataclass(frozen=True)
class Prebuilt:
    """A wheel's libraries, by file name."""

    root: Path
    libraries: Mapping[str, Manifest]
    damaged: set[str] = field(default_factory=set)
    """The file names of which the user was told."""

    def find(
        self, plan: Plan, fits: Callable[[Manifest], bool], notify: Callable[[str], None]
    ) -> Path | None:
        """Return a variant's library if it has these sources, runs here and is intact."""
        known = self.libraries.get(plan.library)
        if not known or known.portable != portable_key(plan) or not fits(known):
            return None
        if as_numbers(known.glibc) > glibc():
            return None
        damage = known.damage(self.root)
        if damage and plan.library not in self.damaged:
            self.damaged.add(plan.library)
            notify(
                f"{self.root / plan.library} is damaged and not used: {damage}. Reinstall losscli."
            )
        return None if damage else self.root / plan.library

    def write(self) -> None:
        """Write the manifest."""
        facts = [asdict(self.libraries[name]) for name in sorted(self.libraries)]
        text = json.dumps({"schema_version": 1, "libraries": facts}, indent=1)
        (self.root / MANIFEST).write_text(f"{text}\n")


def read(root: Path) -> Prebuilt:
    """Return a folder's libraries; OSError, ValueError, TypeError or KeyError if damaged."""
    facts = json.loads((root / MANIFEST).read_text())["libraries"]
    found = [Manifest.of(each) for each in facts]
    return Prebuilt(root, {each.library: each for each in found})


@cache
def wheel_libraries() -> Prebuilt | None:
    """Return the libraries of the wheel that losscli is from, if it has any."""
    if not FOLDER.is_dir():
        return None
    try:
        return read(FOLDER)
    except (OSError, ValueError, TypeError, KeyError):
        note(f"{FOLDER / MANIFEST} is missing or damaged. Reinstall losscli.")
        return None
