"""The machine that probes examine; each fact is found when first needed."""

import csv
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from msgspec import convert

from losscli.build.builder import Builder, BuildResult
from losscli.build.cache import user_cache
from losscli.build.compilers import Compilers
from losscli.build.plan import TorchInstall, csrc_root
from losscli.build.targets import CPU, CUDA, Target, production
from losscli.doctor import questions
from losscli.losses import LOSSES, ROW_LOSSES
from losscli.machine.commands import printed
from losscli.machine.devices import Gpu

NO_TORCH = TorchInstall("", Path(), None, True)
"""Stands for a torch that cannot be imported, while searching for compilers."""
GPU_FIELDS = "uuid,driver_version,compute_mode,clocks.max.sm,memory.used,utilization.gpu"
PROCESS_FIELDS = "gpu_uuid,pid,process_name,used_memory"


@dataclass(frozen=True)
class Torch:
    """This environment's torch, described by a process that imported it."""

    install: TorchInstall
    device: str | None
    """Its choice for the requested device, or None."""
    unfit: str
    trouble: str
    """The error of a small calculation on the device."""
    capabilities: list[tuple[int, int]]
    uuid: str
    warnings: list[str]


@dataclass(frozen=True)
class Driver:
    """What NVIDIA's driver reports; empty without a driver."""

    cuda: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    trouble: str = ""


@dataclass
class Machine:
    """This machine, for one device."""

    asked: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    sleep: Callable[[float], None] = time.sleep
    torch_error: str = ""

    @cached_property
    def torch(self) -> Torch | None:
        """Torch, or None if it cannot be imported."""
        try:
            answer = questions.ask("torch", self.asked)
        except questions.NoAnswerError as error:
            self.torch_error = str(error)
            return None
        # Its answer has the fields of both.
        return convert({**answer, "install": answer}, Torch, dec_hook=lambda kind, text: kind(text))

    @cached_property
    def driver(self) -> Driver:
        """NVIDIA's driver."""
        try:
            return convert(questions.ask("driver"), Driver)
        except questions.NoAnswerError as error:
            return Driver(trouble=str(error))

    @property
    def hidden_gpus(self) -> str:
        """Advice, if a variable may hide GPUs."""
        if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is None:
            return ""
        return f"CUDA_VISIBLE_DEVICES is '{given}' and may hide GPUs: unset it, or name others."

    @cached_property
    def device(self) -> str:
        """The device: torch's answer, or a guess from the request."""
        if self.torch and self.torch.device:
            return self.torch.device
        if self.asked == "auto":
            return "cuda:0" if self.driver.gpus else "cpu"
        return "cuda:0" if self.asked == "cuda" else self.asked

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device != CPU

    @property
    def has_gpu(self) -> bool:
        """Whether the device is a GPU that the driver shows."""
        return self.device in {gpu.name for gpu in self.driver.gpus}

    @cached_property
    def compilers(self) -> Compilers:
        """The compilers, found as a build does."""
        compilers = Compilers(self.torch.install if self.torch else NO_TORCH)
        compilers.capabilities = self.torch.capabilities if self.torch else []
        return compilers

    @cached_property
    def libraries(self) -> list[Target]:
        """The libraries of all losses on the device."""
        return production((*LOSSES, *ROW_LOSSES), CUDA if self.on_gpu else CPU)

    @cached_property
    def kernels(self) -> list[BuildResult]:
        """The libraries that need no build; none without torch."""
        if not self.torch:
            return []
        builder = Builder(self.compilers, user_cache(), csrc_root(), lambda note: None)
        return builder.ready(self.libraries)

    @cached_property
    def gpu_state(self) -> dict[str, str] | None:
        """nvidia-smi's facts about the GPU, or None."""
        return next(iter(self._rows("gpu", GPU_FIELDS) or ()), None)

    @cached_property
    def gpu_processes(self) -> list[dict[str, str]] | None:
        """nvidia-smi's processes on the GPU, or None."""
        return self._rows("compute-apps", PROCESS_FIELDS)

    def _rows(self, of: str, fields: str) -> list[dict[str, str]] | None:
        """Return nvidia-smi's rows of the GPU, whose UUID is the first field, or None."""
        text = printed(["nvidia-smi", f"--query-{of}={fields}", "--format=csv,noheader,nounits"])
        if text is None:
            return None
        ours = [gpu.uuid for gpu in self.driver.gpus if gpu.name == self.device]
        if self.torch:  # which may differ from the driver in a partition
            ours.append(self.torch.uuid)
        rows, names = csv.reader(text.splitlines(), skipinitialspace=True), fields.split(",")
        facts = (dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names))
        return [row for row in facts if any(uuid and uuid in row[names[0]] for uuid in ours)]
