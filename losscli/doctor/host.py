"""Probes of memory, limits, the CPU and other programs."""

import resource
import tempfile
from collections.abc import Iterable

from losscli.bench.conditions import CpuConditions, governor
from losscli.doctor import questions
from losscli.doctor.findings import Observation, ok, warning
from losscli.doctor.machine import Machine
from losscli.implementations.sandbox.isolation_parts import PARTS, missing
from losscli.machine import allocator
from losscli.machine.devices import core_count, cpu_model
from losscli.machine.kernel_files import core_quota
from losscli.machine.memory import free_bytes, limit_bytes, memory_bytes
from losscli.runs.judgements import is_busy
from losscli.units import format_bytes

LEAST_BYTES = 4 * 2**30
"""Free memory below which a build is slow and larger cases do not fit."""
LEAST_OPEN_FILES = 1024
LOOK_SECONDS = 0.5
NAMESPACES = (
    "allow user namespaces on the host, or start the container with --cap-add SYS_ADMIN "
    "--security-opt apparmor=unconfined"
)
OTHER_NEEDS = {
    "files": "use a kernel with Landlock (5.13 or newer)",
    "system calls": "use a kernel with filters of seccomp",
}


def memory(machine: Machine) -> Observation:
    """Report how much memory a run may use."""
    free, limit = free_bytes("cpu"), limit_bytes()
    text = f"{format_bytes(memory_bytes())}, of which {format_bytes(free)} are free"
    if limit is not None:
        text += f"; the control group allows {format_bytes(limit)}"
    if free < LEAST_BYTES:
        return warning(text, "Close other programs or raise the limit; --dry-run shows what fits.")
    return ok(text)


def limits(machine: Machine) -> Observation:
    """Check the shell's resource limits."""
    parts = []
    for name, which in (("ulimit -v", resource.RLIMIT_AS), ("ulimit -d", resource.RLIMIT_DATA)):
        if (most := resource.getrlimit(which)[0]) != resource.RLIM_INFINITY:
            parts.append(f"`{name}` limits memory to {format_bytes(most)}")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files != resource.RLIM_INFINITY and files < LEAST_OPEN_FILES:
        parts.append(f"`ulimit -n` limits open files to {files}")
    if parts:
        advice = f"Set `ulimit -v unlimited -d unlimited -n {LEAST_OPEN_FILES}` in the shell."
        return warning("; ".join(parts), advice)
    return ok(f"{files} open files, no limit of memory")


def cores(machine: Machine) -> Observation:
    """Report the CPU and how many cores a run may use."""
    count, quota = core_count(), core_quota()
    text = f"{cpu_model() or 'unknown CPU'}, {count} cores"
    if quota is not None and quota < count:
        return warning(
            f"{text}, but the control group allows the time of {quota:g}",
            f"Threads are paused when it is used up: give the container whole cores (docker run "
            f"--cpuset-cpus), or run with --threads {max(1, int(quota))}.",
        )
    return ok(text)


def frequency(machine: Machine) -> Observation:
    """Check the CPU's frequency governor."""
    if (found := governor()) is None:
        return ok("no governor is shown, as in most virtual machines")
    if found != "performance":
        told = f"{found}: the CPU's clock follows the load, so that short runs are slower"
        return warning(told, "As root: `cpupower frequency-set -g performance`.")
    return ok(found)


def others(machine: Machine) -> Observation:
    """Measure how much CPU other programs use."""
    conditions = CpuConditions()
    machine.sleep(LOOK_SECONDS)
    if (part := conditions.others()) is None:
        return warning("unknown: the kernel does not count what its cores do", "Look at `top`.")
    text = f"other programs use {part:.0%} of the cores"
    if is_busy({"others": part}):
        return warning(text, "Times cannot be trusted: `top` shows the programs; end them.")
    return ok(text)


def memory_allocator(machine: Machine) -> Observation:
    """Check whether measuring processes can keep freed memory."""
    if why := allocator.unsettable():
        advice = "Use a system with glibc, and unset LD_PRELOAD."
        return warning(f"times on a CPU include page faults of temporaries: {why}", advice)
    return ok("glibc; processes that measure keep freed memory")


def isolation(machine: Machine) -> Observation:
    """Check which parts of the judge's isolation this kernel offers."""
    with tempfile.TemporaryDirectory(prefix="losscli-doctor-") as scratch:
        answer = questions.ask("isolation", scratch, machine.device)
    reached = answer["reached"]
    lacks = [*missing(reached), *filter(None, [answer.get("error")])]
    if not lacks:
        return ok("judge can isolate files in full; --isolation tries it")
    told = f"judge cannot isolate: {', '.join(lacks)}; reached: {', '.join(reached)}"
    return warning(told, f"To judge files that you do not trust, {advice(lacks)}")


def advice(lacks: Iterable[str]) -> str:
    """Return what is needed for missing parts of the isolation."""
    apart = {part.name for part in PARTS if not part.without}
    needs = [NAMESPACES] if apart & {*lacks} else []
    needs += [need for part, need in OTHER_NEEDS.items() if part in {*lacks}]
    return f"{'; '.join(needs)}." if needs else "see docs/isolation.md."
