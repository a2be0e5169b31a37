"""Probes of the system and torch."""

import platform
import sys

from losscli.build.compilers import NO_ROCM, require_platform
from losscli.build.nvcc import Requirements, parse_version
from losscli.doctor.findings import Observation, ok, problem, warning
from losscli.doctor.machine import Machine, Torch

MINIMUM_TORCH = (2, 10)
_INSTEAD = "; use --device cpu"


def system(machine: Machine) -> Observation:
    """Check that kernels can be built on this system."""
    require_platform()
    return ok(platform.platform())


def torch(machine: Machine) -> Observation:
    """Check that torch can be imported."""
    if not (found := machine.torch):
        missing = "No module named 'torch'" in machine.torch_error
        advice = "Run `pip install torch`" if missing else "Reinstall torch"
        advice += f"; `{sys.executable} -c 'import torch'` shows the whole error."
        return problem(f"cannot be imported: {machine.torch_error}", advice)
    cuda = found.install.cuda
    built = f"built for CUDA {cuda}" if cuda else "built without CUDA"
    text = f"{found.install.version}, {built}, {found.install.root}"
    if (version := parse_version(found.install.version)) and version < MINIMUM_TORCH:
        oldest = ".".join(map(str, MINIMUM_TORCH))
        return problem(text, f"Install torch {oldest} or newer: `pip install 'torch>={oldest}'`.")
    if found.install.hip and machine.on_gpu:
        return problem(f"{text}; {NO_ROCM.partition('. ')[0]}", NO_ROCM.partition(". ")[2])
    return ok(text)


def device(machine: Machine) -> Observation:
    """Check that torch computes on the requested device."""
    if not (found := machine.torch):
        return problem(f"{machine.device} cannot be used without torch", "See torch.")
    if found.unfit:
        what = found.unfit.removesuffix(_INSTEAD)
        advice = "Use --device cpu." if what != found.unfit else "Choose another with --device."
        return problem("; ".join([what, *found.warnings]), _advice(machine, found) or advice)
    if found.trouble:
        advice = "See the lines about the GPU. If another program uses it, wait or choose another."
        return problem(f"{machine.device} does not compute: {found.trouble}", advice)
    if machine.asked == "auto" and not machine.on_gpu and machine.driver.gpus:
        why = "; ".join(found.warnings) or f"torch {found.install.version} does not use it"
        told = f"cpu, although there is a GPU ({machine.driver.gpus[0].model}): {why}"
        advice = _advice(machine, found) or "`losscli doctor --device cuda` says more."
        return warning(told, advice)
    return ok(f"{machine.device}, a small calculation is right")


def _advice(machine: Machine, torch: Torch) -> str:
    if not machine.driver.gpus:
        return machine.hidden_gpus if torch.install.cuda else ""
    built, driver = parse_version(torch.install.cuda), machine.driver.cuda
    if not torch.install.cuda:
        return "Install a torch that is built with CUDA, as https://pytorch.org/get-started shows."
    return Requirements(driver, built).advice if driver and built and built[0] > driver[0] else ""
