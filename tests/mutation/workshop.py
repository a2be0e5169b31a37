"""Copies of the checkout in which one thing is broken, built from the objects of the original.

ninja goes by times: a broken file that keeps the time of the original is up to date. So the objects
to be built anew are removed, and only they are; headers that every loss includes need not cost a
build of every loss.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from losscli.extension.cache import user_cache
from losscli.extension.toolchain import find_ninja

from .mutation import Mutation

CHECKOUT = Path(__file__).parents[2]
_COPIED = ("losscli", "csrc", "configs")


class BuildError(Exception):
    """What was written does not compile: no mistake that a kernel could make."""


@dataclass(frozen=True)
class Workshop:
    """A folder for copies of the checkout."""

    root: Path
    device: str
    at_once: int
    """Mutants that are built at a time, on the cores that there are."""

    @property
    def original(self) -> Path:
        """The copy that nothing is broken in."""
        return self.root / "original"

    def build_original(self) -> None:
        """Copy the checkout and build it, out of the user's own objects where there are some."""
        _copy_checkout(CHECKOUT, self.original)
        if (user_cache().root / "work").is_dir():
            shutil.copytree(user_cache().root / "work", self.original / "cache" / "work")
        build(self.original, self.device, {})

    def build_mutant(self, mutation: Mutation, number: int, *, whole: bool) -> Path:
        """Break a copy and build it; ``whole`` for all losses and dtypes."""
        root = self.root / f"mutant-{number}"
        _copy_checkout(self.original, root)
        work = root / "cache" / "work"
        shutil.copytree(self.original / "cache" / "work", work)
        for csrc in (root / "csrc", *work.glob("*/csrc")):
            if (csrc / mutation.file).exists():
                mutation.apply(csrc)
        for folder in work.glob(f"{self.device}-*"):
            for name in stale(mutation, _inputs(folder), whole=whole):
                (folder / name).unlink()
        jobs = max(1, len(os.sched_getaffinity(0)) // self.at_once)
        build(root, self.device, {"MAX_JOBS": str(jobs)})
        return root


def stale(mutation: Mutation, inputs: Mapping[str, set[str]], *, whole: bool) -> Iterator[str]:
    """Yield the objects that a mutation is to be seen in, from what each was made of."""
    of_a_loss = mutation.file.startswith("losses/")
    for name, files in inputs.items():
        if f"csrc/{mutation.file}" not in files:
            continue
        # cpu.instantiate.mse.o, cuda.instantiate.mse.float32.o
        _, stem, *variant, _ = name.split(".")
        loss, dtype = (*variant, None, None)[:2]
        if stem != "instantiate":
            chosen = not of_a_loss
        else:
            chosen = loss in mutation.losses and (dtype is None or dtype in mutation.dtypes)
        if whole or chosen:
            yield name


def environ(root: Path) -> dict[str, str]:
    """Return the environment in which a copy runs, and no other losscli."""
    paths = os.pathsep.join(map(str, (root, CHECKOUT)))
    return os.environ | {"PYTHONPATH": paths, "LOSSCLI_CACHE_DIR": str(root / "cache")}


def build(root: Path, device: str, variables: Mapping[str, str]) -> None:
    """Build the kernels of a copy, with environment variables of its own, or raise BuildError."""
    command = [sys.executable, "-m", "losscli", "build", "--device", device]
    environment = environ(root) | variables
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(done.stderr.strip())


def _copy_checkout(source: Path, to: Path) -> None:
    for name in _COPIED:
        shutil.copytree(source / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))


def _inputs(folder: Path) -> dict[str, set[str]]:
    """Return the files that each object of a work folder was compiled from."""
    command = [find_ninja(), "-t", "deps"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    # A paragraph an object: its name and a colon, then a file a line.
    paragraphs = [text.splitlines() for text in done.stdout.split("\n\n") if text.strip()]
    return {name.partition(":")[0]: set(map(str.strip, files)) for name, *files in paragraphs}
