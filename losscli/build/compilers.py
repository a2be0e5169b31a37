"""The compilers of this machine."""

import platform
from dataclasses import replace
from functools import cached_property

from losscli.errors import UnfitError
from losscli.machine.devices import driver_cuda

from . import nvcc
from .cache import Manifest
from .plan import TorchInstall, with_torch
from .targets import CUDA, TORCH, Target
from .toolchain import Tool, find_compiler, find_host_compiler

NO_ROCM = "losscli's kernels are CUDA C++; ROCm is not supported. Use device cpu."


def require_platform(system: str | None = None) -> None:
    """Raise UnfitError on a system for which kernels cannot be built."""
    system = system or platform.system()
    if system == "Linux":
        return
    name = {"Darwin": "macOS"}.get(system, system or "an unknown system")
    instead = "Use WSL 2" if system == "Windows" else "Use Linux, in a container for example"
    raise UnfitError(f"losscli's kernels are built on Linux only, and this is {name}. {instead}.")


class Compilers:
    """The compilers for one PyTorch, found when first needed."""

    def __init__(self, torch: TorchInstall) -> None:
        self.torch = torch

    @cached_property
    def compiler(self) -> Tool:
        """The C++ compiler."""
        return find_compiler()

    @cached_property
    def requirements(self) -> nvcc.Requirements:
        """Those of CUDA code; none if it is only compiled as a check."""
        if not (torch := nvcc.parse_version(self.torch.cuda)):
            return nvcc.Requirements()
        return nvcc.Requirements(driver_cuda(), torch, max(self.capabilities, default=None))

    @cached_property
    def capabilities(self) -> list[tuple[int, int]]:
        """The compute capabilities of the GPUs."""
        return nvcc.present_capabilities()

    @cached_property
    def nvcc(self) -> Tool:
        """An nvcc whose code runs here."""
        return nvcc.find_nvcc(self.requirements)

    def tool(self, target: Target) -> Tool:
        """Return a library's compiler; UnfitError if there is none."""
        if target.part == TORCH:
            return with_torch(self.compiler, self.torch)
        if target.device != CUDA:
            return self.compiler
        self.require_cuda()
        # Before nvcc, so that a mistake is reported even if it does no harm yet.
        nvcc.requested_architectures()
        gencode = nvcc.gencode_flags(self.capabilities, cuda=self.nvcc.version)
        flags = ("-ccbin", find_host_compiler(self.compiler), *gencode)
        return replace(self.nvcc, compile_flags=flags, link_flags=flags, gencode=gencode)

    def require_cuda(self) -> None:
        """Raise UnfitError if PyTorch uses AMD GPUs."""
        if self.torch.hip:
            raise UnfitError(NO_ROCM)

    def can_run(self, library: Manifest) -> bool:
        """Tell whether another compiler's library runs here."""
        if not library.gencode:
            return True
        version = nvcc.parse_version(library.cuda)
        suits = version and not self.requirements.wrong(version)
        return bool(suits) and nvcc.covers(library.gencode, self.capabilities)
