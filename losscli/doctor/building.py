"""Probes of what a build needs: compilers, ninja, the cache."""

import os
import shlex
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from losscli.build import diagnosis
from losscli.build.builder import FROM_WHEEL
from losscli.build.cache import copy_sources, user_cache
from losscli.build.ninja import find_ninja
from losscli.build.nvcc import gencode_flags, requested_architectures, searched
from losscli.build.plan import Plan, csrc_root, make_plan
from losscli.build.targets import CPU, CUDA, LOSS, RUNTIME, TORCH, Target, is_unit
from losscli.build.toolchain import dotted, find_host_compiler
from losscli.doctor.findings import PROBLEM, WARNING, Observation, ok, problem, refusal, warning
from losscli.doctor.machine import Machine
from losscli.errors import LosscliError, UnfitError, UsageError
from losscli.files.directories import CACHE_VARIABLE
from losscli.machine.commands import first_line, run

TRIAL_SECONDS = 120
_TRIALS = {
    Target(LOSS, CPU, "mse"): "#include <cmath>\n#include <cstdint>\n#include <vector>\n",
    Target(TORCH): "#include <c10/macros/Macros.h>\n",
    Target(RUNTIME, CUDA): "#include <cmath>\n__global__ void empty() {}\n",
}
"""A library per way to compile, with lines that replace its sources."""


def compiler(machine: Machine) -> Observation:
    """Find the C++ compiler and compile a few lines."""
    tool = machine.compilers.compiler
    targets = (Target(LOSS, CPU, "mse"), *([Target(TORCH)] if machine.torch else []))
    error = next(filter(None, (_trial(machine, target) for target in targets)), "")
    identity = next(iter(tool.identity.splitlines()), "")
    text = f"{identity}, {shlex.join(tool.command)}"
    if error:
        raise UnfitError(f"{text}, does not compile: {error}")
    return ok(text)


def nvcc(machine: Machine) -> Observation:
    """Find an nvcc whose code the driver and torch can run."""
    looked = f"looked in {', '.join(searched())}"
    try:
        requested_architectures()
        found = machine.compilers.nvcc
        text = f"CUDA {dotted(found.version)}, {shlex.join(found.command)}"
        if not machine.on_gpu:
            return ok(f"{text}; {CPU} needs none")
        gencode_flags(machine.compilers.capabilities, cuda=found.version)
    except LosscliError as error:
        if machine.on_gpu:
            answer = without(machine, error)
        elif isinstance(error, UsageError):
            answer = refusal(error, WARNING)
        else:
            return ok(f"none that can be used, and {CPU} needs none; {looked}")
        return answer._replace(found=f"{answer.found}; {looked}")
    return ok(f"{text}; {looked}")


def host_compiler(machine: Machine) -> Observation | None:
    """Check that nvcc accepts its host compiler, by compiling an empty kernel."""
    if not machine.on_gpu:
        return None
    try:
        name = find_host_compiler(machine.compilers.compiler)
        tool = machine.compilers.nvcc
    except UnfitError:
        found = "not tried: nvcc or the C++ compiler is missing"
        return warning(found, "See the lines about nvcc and the C++ compiler.")
    if error := _trial(machine, Target(RUNTIME, CUDA)):
        raise UnfitError(f"{shlex.join(tool.command)} fails with {name}: {error}")
    return ok(f"nvcc compiles with {name}")


def ninja(machine: Machine) -> Observation:
    """Find ninja."""
    program = find_ninja()
    if not (version := first_line([str(program), "--version"])):
        raise UnfitError(f"{program} does not run. Run `pip install --force-reinstall ninja`.")
    return ok(f"{version}, {program}")


def cache(machine: Machine) -> Observation:
    """Check that libraries can be stored and other users cannot replace them."""
    cache = user_cache()
    cache.require_private()
    there = cache.nearest()
    state = f"of {_owner(there)}" if there == cache.root else "not there yet"
    what = f"{cache.root}, {state}"
    try:
        cache.require_writable()
    except UnfitError as error:
        return without(machine, error)
    if os.statvfs(there).f_flag & getattr(os, "ST_NOEXEC", 0):
        told = f"{what}, on a file system that is mounted noexec: libraries in it cannot be loaded"
        return problem(told, f"Name a folder on another file system in {CACHE_VARIABLE}.")
    return ok(what)


def without(machine: Machine, error: LosscliError) -> Observation:
    """Return that a build is impossible, which is a problem only if one is needed."""
    ready, needed = [], machine.libraries
    with suppress(UsageError):  # a cache in a missing home
        ready = machine.kernels
    if len(ready) == len(needed):
        what = f"all libraries for {machine.device} are built already"
    elif any(result.status == FROM_WHEEL for result in ready):
        what = f"{len(ready)} of {len(needed)} libraries for {machine.device} are ready"
    else:
        return refusal(error, PROBLEM)
    answer = refusal(error, WARNING)
    return warning(f"{answer.found}; but {what}", answer.advice)


def _trial(machine: Machine, target: Target) -> str:
    """Build a library of a few lines by a build's commands; return the error and a hint."""
    plan = make_plan(target, csrc_root(), machine.compilers.torch)
    plan = plan.with_tool(machine.compilers.tool(target))
    with tempfile.TemporaryDirectory(prefix="losscli-doctor-") as work:
        trial = _TRIALS[target].encode()
        sources = {name: trial if is_unit(name) else text for name, text in plan.sources.items()}
        copy_sources(sources, Path(work, target.name, "csrc"))
        return _run(plan, Path(work))


def _run(plan: Plan, work: Path) -> str:
    for step, command in plan.commands(plan.target.name):
        try:
            done = run(command, cwd=work, env={**os.environ, "LC_ALL": "C"}, timeout=TRIAL_SECONDS)
        except subprocess.TimeoutExpired:
            return f"a few lines take longer than {TRIAL_SECONDS} s"
        except OSError as error:
            return str(error.strerror)
        if done.returncode:
            # Hints are sentences; a compiler's first error may be one.
            told = done.stdout + done.stderr
            first = diagnosis.first_error(told).rstrip(".").replace(". ", ": ")
            return f"{first}. {diagnosis.hint(told)}".removesuffix(" ")
        if not Path(work, plan.target.name, step.output).exists():
            return "it reports success but writes no output. Is it a compiler?"
    return ""


def _owner(path: Path) -> str:
    try:
        return f"user {path.owner()}"
    except KeyError:
        return f"user {path.stat().st_uid}"
