"""Builds the libraries that are missing from the cache."""

import errno
import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from losscli.errors import BuildError, LosscliError, UnfitError
from losscli.files.directories import note_use
from losscli.machine.devices import core_count
from losscli.machine.memory import free_bytes
from losscli.processes.lock import Notify, locked
from losscli.units import first_of, format_duration

from . import diagnosis
from .cache import LOG, Cache, user_cache
from .compilers import Compilers, require_platform
from .ninja import BuildProgress, Receiver, find_ninja, job_count, run_ninja
from .nvcc import requested_architectures
from .plan import Plan, csrc_root, installed_torch, make_plan
from .prebuilt import Prebuilt, cpu_levels, runnable, wheel_libraries
from .targets import CPU, CUDA, TORCH, Target

BUILT, CACHED, COMPILED_ONLY, SKIPPED = "built", "cached", "compiled only", "skipped"
FROM_WHEEL = "from the wheel"
_SECONDS = {TORCH: 13.0, CPU: 5.0, CUDA: 40.0}
"""The mean time of one compilation, by part or else device, to estimate a build's time."""


@dataclass(frozen=True)
class BuildResult:
    """The outcome of one library."""

    target: str
    """Its name, or the device if all its libraries are skipped."""
    status: str
    reason: str = ""
    """Why a library is skipped, only compiled, or rebuilt."""
    path: Path | None = None
    fresh: bool = False
    """Whether it was built now, not found in the cache."""
    variant: str = ""
    """Of a library from the wheel, the machines it is for, such as ``x86-64-v3``."""

    @property
    def log(self) -> str:
        """The commands of the build and their output."""
        try:
            return (self.path.parent / LOG).read_text(errors="replace") if self.path else ""
        except FileNotFoundError:
            return ""


@dataclass(frozen=True)
class Builder:
    """Gets libraries from a cache or a wheel, or builds them."""

    compilers: Compilers
    cache: Cache
    csrc: Path
    notify: Notify
    progress: Receiver = field(default_factory=lambda: BuildProgress([]).show)
    force: bool = False
    prebuilt: Prebuilt | None = field(default_factory=wheel_libraries)
    """The wheel's libraries, used instead of a build."""

    def obtain(self, targets: Iterable[Target]) -> list[BuildResult]:
        """Return libraries; build missing ones together, or raise UnfitError or BuildError."""
        return self.finish([self.resolve(target) for target in targets])

    def ready(self, targets: Iterable[Target]) -> list[BuildResult]:
        """Return the libraries that need no build."""
        found = []
        for target in targets:
            with suppress(LosscliError):
                found.append(self._look_up(self.resolve(target)))
        return [each for each in found if isinstance(each, BuildResult)]

    def resolve(self, target: Target) -> Plan | BuildResult:
        """Return a library's plan, or without a compiler a library built before."""
        self.cache.require_private()
        plan = make_plan(target, self.csrc, self.compilers.torch)
        try:
            return plan.with_tool(self.compilers.tool(target))
        except UnfitError as error:
            reason = f"built before and used again; it cannot be built here: {error}"
            found = not self.force and (self._of_any_compiler(plan, reason) or self._shipped(plan))
            if not found:
                raise
            return found

    def finish(self, resolved: Sequence[Plan | BuildResult]) -> list[BuildResult]:
        """Turn the plans into libraries."""
        outcomes = [self._look_up(item) for item in resolved]
        missing = [item for item in outcomes if isinstance(item, Plan)]
        built = {outcome.target: outcome for outcome in self._build(missing)} if missing else {}
        return [built[o.name] if isinstance(o, Plan) else o for o in outcomes]

    def _look_up(self, plan: Plan | BuildResult) -> Plan | BuildResult:
        if isinstance(plan, BuildResult) or self.force:
            return plan
        if found := self.cache.find(plan):
            note_use(found.parent)
            return BuildResult(plan.name, CACHED, path=found)
        if not (shipped := self._shipped(plan)):
            return plan
        # A library for this CPU is better, whichever compiler built it.
        return self._of_any_compiler(plan, "built before by another compiler") or shipped

    def _of_any_compiler(self, plan: Plan, reason: str) -> BuildResult | None:
        if not (found := self.cache.find_without_tool(plan, self.compilers.can_run)):
            return None
        note_use(found.parent)
        return BuildResult(plan.name, CACHED, reason, found)

    def _shipped(self, plan: Plan) -> BuildResult | None:
        if not self.prebuilt:
            return None
        torch = self.compilers.torch
        for variant in runnable(plan.target, torch.version, torch.cuda):
            wanted = make_plan(plan.target, self.csrc, torch, variant)
            if found := self.prebuilt.find(wanted, self.compilers.can_run, self.notify):
                return BuildResult(plan.name, FROM_WHEEL, path=found, variant=variant)
        return None

    def _build(self, plans: Sequence[Plan]) -> list[BuildResult]:
        with self.cache.open_lock() as file, locked(file, self.notify):
            # Another process may have built some while this one waited.
            looked_up = [self._look_up(plan) for plan in plans]
            outcomes = [item for item in looked_up if isinstance(item, BuildResult)]
            plans = [item for item in looked_up if isinstance(item, Plan)]
            if not plans:
                return outcomes
            ninja, jobs = find_ninja(), job_count(core_count(), free_bytes("cpu"))
            reasons = {}
            for plan in plans:
                if damage := self.cache.damage(plan):
                    self.notify(f"{self.cache.library(plan)} is damaged: {damage}")
                    reasons[plan.name] = f"the library in the cache was damaged: {damage}"
            names = first_of([plan.name for plan in plans], 6)
            self.notify(f"building for this machine: {names}; takes about {_duration(plans, jobs)}")
            self.cache.drop_unused(time.time())
            work = self.cache.prepare(plans, fresh=self.force)
            printed = run_ninja(ninja, work, jobs, self.progress, file)
            for plan in plans:
                if (self.cache.work_folder(plan) / plan.library).is_file():
                    path = self.cache.publish(plan, self._log(plan))
                    reason = reasons.get(plan.name, "")
                    outcomes.append(BuildResult(plan.name, BUILT, reason, path, fresh=True))
                elif printed is None:
                    assert plan.tool
                    raise BuildError(
                        f"{plan.steps[-1].description}: {plan.tool.command[0]} reported success "
                        "but made no output. Is it a compiler? Correct CXX or CUDACXX."
                    )
            if printed is not None:
                raise _failure(plans, printed, self.cache)
        return outcomes

    def _log(self, plan: Plan) -> str:
        folder, parts = self.cache.work_folder(plan), []
        for step, command in plan.commands(folder.name):
            printed = (folder / f"{step.output}.log").read_text(errors="replace")
            parts.append(f"# {step.description}\n$ {shlex.join(command)}\n{printed}")
        return "\n".join(parts)


def _duration(plans: Sequence[Plan], jobs: int) -> str:
    compiled = (plan.target for plan in plans for step in plan.steps if step.depfile)
    each = [_SECONDS.get(target.part, _SECONDS[target.device]) for target in compiled]
    return format_duration(max(sum(each) / max(1, min(jobs, len(each))), *each, 0.0))


def build(
    device: str, targets_of: Callable[[str], Iterable[Target]], notify: Notify, force: bool = False
) -> list[BuildResult]:
    """Build the libraries for CPU and CUDA in parallel, whatever the wheel has.

    ``auto`` skips CUDA, with a reason, if it cannot run here. ``cuda`` compiles even so. UnfitError
    without a compiler or a cache, BuildError if a compiler fails, UsageError for invalid variables.
    """
    require_platform()
    torch = installed_torch()
    compilers = Compilers(torch)
    builder = Builder(compilers, user_cache(), csrc_root(), notify, force=force, prebuilt=None)

    def resolve(device: str) -> dict[Target, Plan | BuildResult]:
        return {target: builder.resolve(target) for target in targets_of(device)}

    resolved, skipped = resolve(CPU), []
    if device != CPU:
        requested_architectures()
        try:
            if device != CUDA:
                _require_gpu(compilers)
            resolved |= resolve(CUDA)
        except UnfitError as error:
            if device == CUDA:
                raise
            skipped.append(BuildResult(CUDA, SKIPPED, reason=str(error)))
    # CUDA takes longest.
    order = sorted(resolved, key=lambda target: target.device != CUDA)
    finished = dict(zip(order, builder.finish([resolved[t] for t in order]), strict=True))
    if not torch.cuda:
        reason = f"torch {torch.version} is built without CUDA"
        for target in resolved:
            if target.device == CUDA:
                finished[target] = replace(finished[target], status=COMPILED_ONLY, reason=reason)
    return [finished[target] for target in resolved] + skipped


def kernels_of_wheel(targets: Iterable[Target]) -> str | None:
    """Return what the wheel's kernels in use are for; None if all are built here.

    ``x86-64-v3 from the wheel, on a CPU with x86-64-v4``: a library for this CPU may be faster.
    """
    if not wheel_libraries():
        return None
    builder = Builder(Compilers(installed_torch()), user_cache(), csrc_root(), lambda note: None)
    ready = builder.ready(target for target in targets if target.part != TORCH)
    used = [*dict.fromkeys(result.variant for result in ready if result.variant)]
    best, *lower = cpu_levels() or [""]
    on = f", on a CPU with {best}" if {*lower} & {*used} else ""
    return f"{', '.join(used)} from the wheel{on}" if used else None


def _require_gpu(compilers: Compilers) -> None:
    compilers.require_cuda()
    if not compilers.torch.cuda:
        why = f"torch {compilers.torch.version} is built without CUDA"
    elif not compilers.capabilities:
        why = "torch sees no GPU"
    else:
        return
    raise UnfitError(f"{why}. `losscli build --device cuda` compiles the kernels anyway.")


def _failure(plans: Sequence[Plan], printed: str, cache: Cache) -> Exception:
    log = cache.work / LOG
    with cache.writing():
        log.write_text(printed, "utf-8")
        if os.strerror(errno.ENOSPC) in printed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    failed = diagnosis.failed_step(printed)
    names = {
        f"{cache.work_folder(plan).name}/{step.output}": step.description
        for plan in plans
        for step in plan.steps
    }
    parts = [f"{names.get(failed, failed)} failed: {diagnosis.first_error(printed)}"]
    parts += [diagnosis.hint(printed), f"The whole log is {log}"]
    return BuildError("\n  ".join(part for part in parts if part))
