"""The table of probes, and the examination of a machine."""

from collections.abc import Callable, Sequence

from losscli.doctor import building, gpu, host, software
from losscli.doctor.findings import Examination, Finding, Probe
from losscli.doctor.machine import Machine

SOFTWARE, GPU, BUILD, HOST = "software", "GPU", "build", "host"

PROBES = (
    Probe(SOFTWARE, "system", software.system),
    Probe(SOFTWARE, "torch", software.torch),
    Probe(SOFTWARE, "device", software.device),
    Probe(GPU, "driver", gpu.driver),
    Probe(GPU, "GPUs", gpu.gpus),
    Probe(GPU, "clocks", gpu.monitoring, of_gpu=True),
    Probe(GPU, "sharing", gpu.sharing, of_gpu=True),
    Probe(GPU, "other programs", gpu.others, of_gpu=True),
    Probe(BUILD, "C++ compiler", building.compiler, building.without),
    Probe(BUILD, "nvcc", building.nvcc),
    Probe(BUILD, "host compiler", building.host_compiler, building.without),
    Probe(BUILD, "ninja", building.ninja, building.without),
    Probe(BUILD, "cache", building.cache),
    Probe(HOST, "memory", host.memory),
    Probe(HOST, "limits", host.limits),
    Probe(HOST, "CPU", host.cores),
    Probe(HOST, "governor", host.frequency),
    Probe(HOST, "other programs", host.others),
    Probe(HOST, "allocator", host.memory_allocator),
    Probe(HOST, "isolation", host.isolation),
)
"""In report order; each affects a build, a benchmark or isolation."""


def examine(
    machine: Machine,
    *,
    probes: Sequence[Probe] = (),
    progress: Callable[[str], None] = lambda name: None,
) -> Examination:
    """Run all probes on a machine; ``progress`` receives each name before its probe runs."""
    findings: list[Finding] = []
    for probe in probes or PROBES:
        progress(probe.name)
        if finding := probe.find(machine):
            findings.append(finding)
    return Examination(asked_device=machine.asked, device=machine.device, results=findings)
