"""Build what is missing: from a device to finished libraries in the cache."""

from __future__ import annotations

import errno
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from losscli.environment import free_bytes
from losscli.errors import BuildError, UnfitError

from . import diagnosis
from .architectures import gencode_flags, present_capabilities, requested_architectures
from .cache import Cache, user_cache
from .lock import locked
from .ninja_run import Progress, job_count, run_ninja
from .plan import CPU, CUDA, Plan, TorchInstall, cpu_plan, csrc_root, cuda_plan, installed_torch
from .toolchain import Tool, find_compiler, find_host_compiler, find_ninja, find_nvcc

BUILT, CACHED, COMPILED_ONLY, SKIPPED = "built", "cached", "compiled only", "skipped"
LOG = "build.log"

Notify = Callable[[str], None]
"""Called with one line that a person should see now."""


@dataclass(frozen=True)
class Outcome:
    """What became of one target."""

    target: str
    status: str
    """``built``, ``cached``, ``compiled only`` or ``skipped``."""
    reason: str = ""
    """Why a target is skipped or not more than compiled."""
    seconds: float | None = None
    """What building took; None where nothing was."""
    path: Path | None = None
    """The library."""

    @property
    def log(self) -> str:
        """Every command of the build and what it printed."""
        return (self.path.parent / LOG).read_text(errors="replace") if self.path else ""


def build(
    device: str = "auto",
    *,
    force: bool = False,
    notify: Notify,
    progress: Progress,
    cache: Cache | None = None,
    csrc: Path | None = None,
) -> list[Outcome]:
    """Build the library for the CPU and, unless ``device`` is ``cpu``, that for CUDA.

    CUDA is skipped with a reason where there is no nvcc, unless it was asked for by name; with an
    nvcc and a PyTorch without CUDA its kernels are compiled as a check.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.
        force: build again what is in the cache.
        notify: told what is going on, a line at a time.
        progress: told each step of a build.
        cache: where libraries are kept; the user's own by default.
        csrc: the C++ sources; losscli's own by default.

    Raises:
        UnfitError: a compiler is missing or too old, or the cache cannot be written.
        BuildError: a compiler failed.
        UsageError: MAX_JOBS or LOSSCLI_CUDA_ARCHITECTURES makes no sense.
    """
    cache, csrc = cache or user_cache(), csrc or csrc_root()
    torch, compiler = installed_torch(), find_compiler()
    plans = [cpu_plan(csrc, compiler, torch)]
    skipped = []
    if device != CPU:
        try:
            plans.append(plan_cuda(csrc, compiler))
        except UnfitError as error:
            if device == CUDA:
                raise
            skipped.append(Outcome(CUDA, SKIPPED, reason=str(error)))
    outcomes = [
        ensure(plan, cache, force=force, notify=notify, progress=progress) for plan in plans
    ]
    return [_of_use(outcome, torch) for outcome in outcomes] + skipped


def plan_cuda(csrc: Path, compiler: Tool) -> Plan:
    """Plan the CUDA library for the GPUs here; UnfitError without a usable nvcc."""
    # Before nvcc: a slip is worth a word even where it does no harm yet.
    requested_architectures()
    nvcc = find_nvcc()
    return cuda_plan(
        csrc, nvcc, find_host_compiler(compiler), gencode_flags(present_capabilities())
    )


def ensure(
    plan: Plan,
    cache: Cache,
    *,
    force: bool = False,
    notify: Notify,
    progress: Progress = lambda line: None,
) -> Outcome:
    """Return a plan's library out of the cache, building it first if it is not there."""
    if cache.library(plan).is_file() and not force:
        cache.touch(plan)
        return Outcome(plan.target, CACHED, path=cache.library(plan))
    with cache.open_lock() as file, locked(file, notify):
        # Another process may have built it while this one waited.
        if cache.library(plan).is_file() and not force:
            return Outcome(plan.target, CACHED, path=cache.library(plan))
        ninja, jobs = find_ninja(), job_count(len(os.sched_getaffinity(0)), free_bytes("cpu"))
        notify(f"building the {plan.target.upper()} kernels for this machine")
        started = time.perf_counter()
        cache.drop_unused(time.time())
        folder = cache.prepare(plan, fresh=force)
        printed = run_ninja(ninja, folder, jobs, progress, file)
        if printed is not None:
            raise _failure(plan, folder, printed, cache)
        if not (folder / plan.library).is_file():
            link = plan.edges[-1]
            raise BuildError(
                f"{link.description}: {link.command[0]} reported success but made no output. "
                "Is it a compiler? Correct CXX or CUDACXX."
            )
        log = _log(plan, folder)
        with cache.writing():
            (folder / LOG).write_text(log)
        cache.publish(plan, (plan.library, LOG, "build.ninja"))
        seconds = time.perf_counter() - started
    return Outcome(plan.target, BUILT, seconds=seconds, path=cache.library(plan))


def _of_use(outcome: Outcome, torch: TorchInstall) -> Outcome:
    """Say of CUDA kernels that this PyTorch cannot run them."""
    if outcome.target != CUDA or torch.cuda:
        return outcome
    reason = f"torch {torch.version} is built without CUDA"
    return Outcome(CUDA, COMPILED_ONLY, reason, outcome.seconds, outcome.path)


def _log(plan: Plan, folder: Path) -> str:
    """Return what every command printed, those of earlier builds in this folder included."""
    parts = []
    for edge in plan.edges:
        printed = (folder / f"{edge.output}.log").read_text(errors="replace")
        parts.append(f"# {edge.description}\n$ {shlex.join(edge.command)}\n{printed}")
    return "\n".join(parts)


def _failure(plan: Plan, folder: Path, printed: str, cache: Cache) -> Exception:
    """Keep the log of a failed build; return the error that sums it up.

    A full disk is raised at once, in the cache's own words: no compiler is at fault.
    """
    log = folder / LOG
    with cache.writing():
        log.write_text(printed)
        if os.strerror(errno.ENOSPC) in printed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    step = diagnosis.failed_step(printed)
    names = {edge.output: edge.description for edge in plan.edges}
    parts = [f"{names.get(step, step)} failed: {diagnosis.first_error(printed)}"]
    parts += [diagnosis.hint(printed), f"The whole log is {log}"]
    return BuildError("\n  ".join(part for part in parts if part))
