"""Copies of the checkout in which one thing is broken, built from the objects of the original.

ninja compares times: a broken file with the original's time is up to date. So the objects to
rebuild are removed, and only they; a header that the operators' library includes then does not
rebuild all that includes PyTorch.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from losscli.build.cache import user_cache
from losscli.build.ninja import find_ninja
from losscli.build.targets import BENCH, RUNTIME, TORCH, Target, needed
from losscli.cases.axes import DTYPES
from losscli.implementations import STRATEGIES
from losscli.losses import ROW_FORMS

from .build_libraries import command
from .mutation import Mutation

CHECKOUT = Path(__file__).parents[2]
_COPIED = ("losscli", "csrc", "configs")
_WAYS = {False, True}
"""Without the library of a loss's strategies, and with it."""


class BuildError(Exception):
    """The mutation does not compile, so no kernel can have it."""


@dataclass(frozen=True)
class Workshop:
    """A folder for copies of the checkout."""

    root: Path
    device: str
    at_once: int
    """Mutants that are built at a time, on the cores that there are."""

    @property
    def original(self) -> Path:
        return self.root / "original"

    def build_original(self, mutations: Iterable[Mutation]) -> None:
        """Copy the checkout; build what the mutations need, from the user's own objects."""
        _copy_checkout(CHECKOUT, self.original)
        if (user_cache().root / "work").is_dir():
            shutil.copytree(user_cache().root / "work", self.original / "cache" / "work")
        targets = {target for m in mutations for target in libraries(m, self.device, whole=False)}
        build(self.original, sorted(targets, key=lambda target: target.name), {})

    def build_mutant(self, mutation: Mutation, number: int, *, whole: bool) -> Path:
        """Apply a mutation to a copy and build it; ``whole``: all dtypes, strategies and losses."""
        root = self.root / f"mutant-{number}"
        _copy_checkout(self.original, root)
        targets = libraries(mutation, self.device, whole=whole)
        cache, work = self.original / "cache", root / "cache" / "work"
        work.mkdir(parents=True, mode=0o700)
        for path in (cache / "work").iterdir():
            if path.is_file():  # of ninja: what it knows of the objects
                shutil.copy2(path, work)
        for target in targets:
            for folder in cache.glob(f"{target.name}-*"):
                shutil.copytree(folder, root / "cache" / folder.name)
            for folder in (cache / "work").glob(f"{target.name}-*"):
                shutil.copytree(folder, work / folder.name)
        before = (self.original / "csrc" / mutation.file).read_bytes()
        for csrc in (root / "csrc", *work.glob("*/csrc")):
            file = csrc / mutation.file  # in the user's objects perhaps of older sources
            if file.exists() and file.read_bytes() == before:
                mutation.apply(csrc)
        for name in stale(mutation, targets, _inputs(work), whole=whole):
            (work / name).unlink()
        jobs = max(1, len(os.sched_getaffinity(0)) // self.at_once)
        build(root, targets, {"MAX_JOBS": str(jobs)})
        return root


def libraries(mutation: Mutation, device: str, *, whole: bool) -> list[Target]:
    """Return the libraries of the calls that may notice a mutation."""
    losses = mutation.losses_of_survivor if whole else mutation.losses
    ways = _WAYS if whole else {_is_strategy(name) for name in mutation.implementations}
    found: dict[Target, None] = {}
    for loss in losses:
        # Losses over rows have no other ways to finish a sum.
        for way in (False,) if loss in ROW_FORMS else sorted(ways):
            found |= dict.fromkeys(needed(loss, device, strategies=way))
    return list(found)


def _is_strategy(implementation: str) -> bool:
    return implementation.partition(":")[2] in STRATEGIES


def stale(
    mutation: Mutation,
    targets: Iterable[Target],
    inputs: Mapping[str, set[str]],
    *,
    whole: bool,
) -> Iterator[str]:
    """Yield the objects to rebuild for a mutation.

    Args:
        mutation: what is broken.
        targets: the existing libraries.
        inputs: what each object was compiled from, both below the folder that ninja runs in.
        whole: whether to rebuild all dtypes.
    """
    by_name = {target.name: target for target in targets}
    for path, files in inputs.items():
        folder, _, name = path.partition("/")
        target = by_name.get(folder.rpartition("-")[0])
        if not target or f"{folder}/csrc/{mutation.file}" not in files:
            continue
        if target.part in (TORCH, RUNTIME, BENCH):
            if mutation.file.startswith(target.unit_folder):
                yield path
            continue
        dtype = name.split(".")[-2]  # elementwise.cuda.dense.float32.o
        if whole or dtype not in DTYPES or dtype in mutation.dtypes:
            yield path


def environ(root: Path) -> dict[str, str]:
    """Return the environment in which a copy runs, and no other losscli."""
    paths = os.pathsep.join(map(str, (root, CHECKOUT)))
    return os.environ | {"PYTHONPATH": paths, "LOSSCLI_CACHE_DIR": str(root / "cache")}


def build(root: Path, targets: Iterable[Target], variables: Mapping[str, str]) -> None:
    """Build libraries of a copy, with its environment variables, or raise BuildError."""
    environment = environ(root) | dict(variables)
    done = subprocess.run(
        command(targets), cwd=root, env=environment, capture_output=True, text=True
    )
    stop_if_interrupted(done.returncode)
    if done.returncode:
        raise BuildError(done.stderr.strip())


def stop_if_interrupted(returncode: int) -> None:
    """Raise KeyboardInterrupt if a program ended by Ctrl-C, which all of a terminal's get."""
    if returncode == -signal.SIGINT:
        raise KeyboardInterrupt


def _copy_checkout(source: Path, to: Path) -> None:
    for name in _COPIED:
        shutil.copytree(source / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))


def _inputs(work: Path) -> dict[str, set[str]]:
    """Return the files that each object of the last build was compiled from."""
    done = subprocess.run(
        [find_ninja(), "-t", "deps"], cwd=work, capture_output=True, text=True, check=True
    )
    # A paragraph an object: its name and a colon, then a file a line.
    paragraphs = [text.splitlines() for text in done.stdout.split("\n\n") if text.strip()]
    return {name.partition(":")[0]: set(map(str.strip, files)) for name, *files in paragraphs}
