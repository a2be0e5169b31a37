"""Breaks the kernels on purpose, one line at a time, and reports whether `losscli verify` notices.

`python -m tools.mutate` applies each mutation of the CPU's sources to a copy of the checkout,
builds it and runs the checks until one fails; `--device cuda` does so for CUDA, on a machine with a
GPU. It builds and verifies only what the mutation names; an unexpected survivor on a CPU is built
completely and gets all checks of `losscli verify`. It prints a line per mutation: killed by a
check, or survived. The exit code is 1 if a mutation survives without a known reason. `--only WORDS`
chooses mutations by their description, `-o FILE` writes the record. Ctrl-C ends it; what was found
is written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from losscli.machine import description

from .mutation.cpu import CPU
from .mutation.cpu_rows import ROWS
from .mutation.cuda import CUDA
from .mutation.formulas import FORMULAS
from .mutation.losses import LOSSES
from .mutation.mutation import Mutation
from .mutation.torch_layer import TORCH
from .mutation.trial import FOUND, Trial, command
from .mutation.workshop import BuildError, Workshop, environ, stop_if_interrupted

KILLED, SURVIVED, UNSEEN, EQUIVALENT = "killed", "SURVIVED", "unseen", "equivalent"
BUILT, BROKEN = "built", "DOES NOT BUILD"
CRASH, HANG = "crash", "hang"
PATIENCE = {"cpu": 300.0, "cuda": 45.0}
"""Seconds without a result after which a kernel counts as hanging."""
TRIALS_AT_ONCE = 8
"""Trials at once on one GPU, where they take turns."""


@dataclass(frozen=True)
class Death:
    """The failure that killed a mutant."""

    by: str
    """The name of a check, a crash, or a hang."""
    reason: str


@dataclass(frozen=True)
class Outcome:
    file: str
    mistake: str
    status: str
    by: str
    """The check that killed the mutation; empty if none did."""
    reason: str
    """The reason of the failing check, of a surviving mutation, or of a failed build."""
    seconds: float

    def __str__(self) -> str:
        told = f"{self.status} by {self.by}" if self.by else self.status
        said = f", {self.reason}" if self.reason else ""
        return f"{self.file}, {self.mistake}: {told}{said} ({self.seconds:.0f} s)"


def mutations(device: str) -> tuple[Mutation, ...]:
    """Return a device's mutations; those of the formulas are the same on both."""
    return (*LOSSES, *FORMULAS, *CPU, *ROWS, *TORCH) if device == "cpu" else CUDA


def killer(root: Path, trial: Trial, patience: float) -> Death | None:
    """Run the trial of a copy; return the first failure."""
    progress = root / "progress"
    with progress.open("w") as out, (root / "errors").open("w") as errors:
        process = subprocess.Popen(
            command(trial), cwd=root, env=environ(root), stdout=out, stderr=errors
        )
        finished = _wait(process, progress, patience)
    lines = progress.read_text().splitlines()
    if not finished:
        return Death(HANG, f"{patience:.0f} s after {lines[-1] if lines else 'nothing'}")
    stop_if_interrupted(process.returncode)
    if process.returncode == 0:
        assert lines, "a trial of no checks shows nothing"
        return None
    if process.returncode == FOUND and len(lines) > 1:
        check, _, case = lines[-2].partition(": ")
        return Death(check, f"{case}: {lines[-1]}")
    said = (root / "errors").read_text().strip().splitlines()
    return Death(CRASH, f"exit code {process.returncode}: {said[-1] if said else 'nothing said'}")


def _wait(process: subprocess.Popen[bytes], progress: Path, patience: float) -> bool:
    """Wait for a process while its progress grows; else end it and return False."""
    seen = -1
    while True:
        try:
            process.wait(patience)
            return True
        except subprocess.TimeoutExpired:
            if (size := progress.stat().st_size) == seen:
                process.kill()
                process.wait()
                return False
            seen = size


def judge(mutation: Mutation, death: Death | None) -> tuple[str, str, str]:
    """Return the status, the check that killed the mutation, and the reason."""
    if death:
        return KILLED, death.by, death.reason
    if mutation.equivalent:
        return EQUIVALENT, "", mutation.equivalent
    return (UNSEEN, "", mutation.unseen) if mutation.unseen else (SURVIVED, "", "")


def is_expected(outcome: Outcome, mutation: Mutation) -> bool:
    """Tell whether it was killed, has a known reason to survive, or was only built."""
    survives = EQUIVALENT if mutation.equivalent else UNSEEN if mutation.unseen else KILLED
    return outcome.status in (survives, BUILT)


class Run:
    """Tries mutations, several at a time, and prints their outcomes."""

    def __init__(self, workshop: Workshop, whole: bool) -> None:
        """``whole``: survivors get all that `losscli verify` runs."""
        self.workshop, self.whole = workshop, whole
        self._turn = threading.Semaphore(TRIALS_AT_ONCE)

    def __call__(self, numbered: tuple[int, Mutation]) -> Outcome:
        number, mutation = numbered
        started = time.monotonic()
        try:
            status, by, reason = self._fate(mutation, number)
        except BuildError as error:
            status, by, reason = BROKEN, "", str(error)
        finally:
            shutil.rmtree(self.workshop.root / f"mutant-{number}", ignore_errors=True)
        seconds = time.monotonic() - started
        outcome = Outcome(mutation.file, mutation.mistake, status, by, reason, seconds)
        print(outcome, flush=True)
        return outcome

    def _fate(self, mutation: Mutation, number: int) -> tuple[str, str, str]:
        return judge(mutation, self._death(mutation, number))

    def _death(self, mutation: Mutation, number: int) -> Death | None:
        device = self.workshop.device
        root = self.workshop.build_mutant(mutation, number, whole=False)
        with self._turn:
            found = killer(root, Trial.of(mutation, device), PATIENCE[device])
        known = mutation.sizes or mutation.equivalent or mutation.unseen
        if found or known or not self.whole:
            return found
        shutil.rmtree(root, ignore_errors=True)
        root = self.workshop.build_mutant(mutation, number, whole=True)
        return killer(root, Trial.whole(mutation, device), PATIENCE[device])


class BuildAlone(Run):
    """Only compiles, where there is no GPU to run on."""

    def _fate(self, mutation: Mutation, number: int) -> tuple[str, str, str]:
        self.workshop.build_mutant(mutation, number, whole=False)
        return BUILT, "", ""


def try_all(
    chosen: Sequence[Mutation], device: str, jobs: int, kind: type[Run], whole: bool
) -> list[Outcome]:
    """Build the original, then try each until Ctrl-C; return the outcomes in their order."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="losscli-mutants-") as folder:
        workshop = Workshop(Path(folder), device, jobs)
        workshop.build_original(chosen)
        print(f"built the original ({time.monotonic() - started:.0f} s)", flush=True)
        with ThreadPoolExecutor(jobs) as pool:
            run = kind(workshop, whole)
            trials = [pool.submit(run, each) for each in enumerate(chosen)]
            with suppress(KeyboardInterrupt):
                wait(trials, return_when=FIRST_EXCEPTION)
            pool.shutdown(cancel_futures=True)
            ended = (t for t in trials if not t.cancelled())
            return [t.result() for t in ended if not isinstance(t.exception(), KeyboardInterrupt)]


def record(outcomes: Iterable[Outcome], device: str) -> dict[str, object]:
    return {
        "kind": "mutate",
        "device": device,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": description.describe(device),
        "results": [asdict(outcome) for outcome in outcomes],
    }


def score(results: Sequence[Mapping[str, object]]) -> str:
    """Return the line that summarizes a record's results."""
    counts = Counter(str(result["status"]) for result in results)
    others = [f"{count} {status}" for status, count in counts.items() if status != KILLED]
    return ", ".join([f"{counts[KILLED]} of {len(results)} killed", *others])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--only", action="append", help="run those whose description has these words, or others"
    )
    parser.add_argument("--jobs", type=int, default=1, help="mutations at a time")
    parser.add_argument(
        "--whole",
        action=argparse.BooleanOptionalAction,
        help="put survivors to all that `losscli verify` runs; the default on a CPU",
    )
    parser.add_argument("--build-only", action="store_true", help="see whether each compiles")
    parser.add_argument("-o", "--output", type=Path, help="write a record, as JSON")
    given = parser.parse_args(arguments)
    chosen = [
        m for m in mutations(given.device) if any(words in m.name for words in given.only or [""])
    ]
    kind = BuildAlone if given.build_only else Run
    whole = given.device == "cpu" if given.whole is None else given.whole
    outcomes = try_all(chosen, given.device, given.jobs, kind, whole)
    interrupted = len(outcomes) < len(chosen)
    if interrupted:
        print(f"interrupted: {len(outcomes)} of {len(chosen)} mutations were tried")
    print(score([asdict(outcome) for outcome in outcomes]), flush=True)
    if given.output:
        text = json.dumps(record(outcomes, given.device), indent=1)
        given.output.write_text(f"{text}\n")
    if interrupted:
        return 128 + signal.SIGINT
    return 0 if all(map(is_expected, outcomes, chosen)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
