"""A made-up machine for `losscli doctor`: stand-in programs, files of the kernel, and answers."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ninja  # noqa: F401 - which asks sysconfig where it lies, before that is replaced
import pytest

from losscli.build import compilers, nvcc
from losscli.doctor import building, host, questions
from losscli.doctor.findings import OK, Examination, Finding, Probe
from losscli.doctor.machine import Machine
from losscli.doctor.probes import PROBES, examine
from losscli.implementations.sandbox.isolation_parts import NAMES
from losscli.machine import kernel_files
from losscli.machine.devices import Gpu
from tests.standin import GCC_VERSION, NVCC_VERSION, write_program

UUID = "6f3b1a52-0000-1111-2222-333344445555"
KIB_OF_GIB = 2**20
PROGRAMS = Path(__file__).parent / "data" / "programs"

# Writes to its output, as compilers do.
_COMPILER = (PROGRAMS / "doctors_compiler.sh").read_text()
_NVIDIA_SMI = (PROGRAMS / "nvidia-smi.sh").read_text()
_FILES = {
    "proc/meminfo": f"MemTotal: {64 * KIB_OF_GIB} kB\nMemAvailable: {48 * KIB_OF_GIB} kB\n",
    "proc/self/cgroup": "0::/\n",
    "proc/cpuinfo": "model name : A CPU\nflags : fpu avx2 fma avx512f\nFeatures : asimd\n",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
}
_GPU = {
    "uuid": f"GPU-{UUID}",
    "driver_version": "580.82.07",
    "compute_mode": "Default",
    "clocks.max.sm": "1980",
    "memory.used": "4",
    "utilization.gpu": "0",
}


@dataclass
class MadeUp:
    """A machine whose parts a test changes before it is examined; an H200 with all it needs."""

    root: Path
    answers: dict[str, Any] = field(default_factory=dict)
    """By question; an exception is raised."""
    gpu: dict[str, str] = field(default_factory=lambda: dict(_GPU))
    """What nvidia-smi says of the GPU."""
    processes: str = ""
    """What nvidia-smi says of processes."""
    busy: float | None = 0.0
    compiles: bool = False
    """Whether compilers are called for more than their version."""

    def __post_init__(self) -> None:
        for name, text in _FILES.items():
            self.write(name, text)
        self.program("g++", GCC_VERSION)
        self.program("nvcc", NVCC_VERSION)
        self.answers |= {
            "torch": {
                "version": "2.13.0+cu130",
                "root": str(self.root / "torch"),
                "cuda": "13.0",
                "hip": None,
                "cxx11_abi": True,
                "device": "cuda:0",
                "unfit": "",
                "trouble": "",
                "capabilities": [[9, 0]],
                "uuid": UUID,
                "warnings": [],
            },
            "driver": {
                "cuda": [13, 0],
                "gpus": [asdict(Gpu("cuda:0", "NVIDIA H200", 150 * 2**30, UUID))],
            },
            "conditions": {
                "sm_clock_hz": [345e6, 345e6],
                "celsius": [31, 31],
                "watts": [76.4, 76.4],
                "throttle_reasons": [],
            },
            "isolation": {"reached": list(NAMES)},
        }

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, version: str, trouble: str = "") -> None:
        """Write a compiler; ``trouble`` is what it does instead of compiling."""
        write_program(self.root / "bin" / name, _COMPILER.format(version=version, trouble=trouble))

    def remove(self, *programs: str) -> None:
        for name in programs:
            (self.root / "bin" / name).unlink()

    def without_gpu(self) -> None:
        """Make it a machine without a GPU or a driver, with a torch for the CPU."""
        self.answers["driver"] = {"cuda": None, "gpus": []}
        self.answers["torch"] |= {"version": "2.13.0+cpu", "cuda": None, "device": "cpu"}
        self.answers["torch"] |= {"capabilities": [], "uuid": ""}
        self.gpu.clear()

    def ask(self, question: str, *arguments: str) -> dict[str, Any]:
        """Answer as the process of its own does."""
        answer = self.answers[question]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def examine(self, asked: str = "auto", probes: Sequence[Probe] = PROBES) -> Examination:
        """Return the report of the doctor, which compiles nothing."""
        if self.gpu:
            gpu = ", ".join(self.gpu.values())
            script = _NVIDIA_SMI.format(gpu=gpu, processes=self.processes)
            write_program(self.root / "bin" / "nvidia-smi", script)
        with pytest.MonkeyPatch.context() as patch:
            if not self.compiles:
                patch.setattr(building, "_run", lambda plan, work: "")
            return examine(Machine(asked, sleep=lambda seconds: None), probes=probes)

    def look(self, name: str, asked: str = "auto") -> Finding:
        """Return one finding of the report, such as ``GPU: driver``."""
        probes = [each for each in PROBES if f"{each.area}: {each.name}" == name]
        [found] = self.examine(asked, probes).results
        return found

    def complaints(self, asked: str = "auto") -> dict[str, str]:
        """Return the state of each finding that is not ok."""
        found = self.examine(asked).results
        return {f"{each.area}: {each.name}": each.state for each in found if each.state != OK}


def make_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    """Make losscli see a made-up machine below a folder."""
    made = MadeUp(root)
    tools = ("CXX", "CUDACXX", "CUDA_HOME", "CUDA_PATH", "CUDAHOSTCXX", "MAX_JOBS")
    for name in (*tools, "LOSSCLI_CUDA_ARCHITECTURES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{root / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(root / "cache"))
    monkeypatch.setattr(questions, "ask", made.ask)
    monkeypatch.setattr(kernel_files, "PROC", root / "proc")
    monkeypatch.setattr(kernel_files, "SYS", root / "sys")
    monkeypatch.setattr(nvcc, "USUAL_PLACE", root / "local")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(root / "site-packages"))
    monkeypatch.setattr(compilers, "driver_cuda", lambda: made.answers["driver"]["cuda"])
    monkeypatch.setattr(host, "core_count", lambda: 8)

    class Conditions:
        others: Callable[[Any], float | None] = staticmethod(lambda: made.busy)  # type: ignore[assignment]

    monkeypatch.setattr(host, "CpuConditions", Conditions)
    return made
