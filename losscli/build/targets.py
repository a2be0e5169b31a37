"""The libraries, and the csrc files that each may include.

A library's key covers only these, so an edited loss recompiles nothing else. A build copies only
these, so including any other fails.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from losscli.losses import ROW_LOSSES, operators_for
from losscli.losses.elementwise.weighting import inner_name, is_weighted

CPU, CUDA = "cpu", "cuda"
DEVICES = (CPU, CUDA)

TORCH, RUNTIME, BENCH, LOSS, STRATEGIES = "torch", "runtime", "bench", "loss", "strategies"
PARTS = "parts"

Sources = Mapping[str, bytes]
"""Contents by path under csrc."""

_HEADERS, _UNITS = {".h", ".cuh"}, {".cpp", ".cu"}
_PARTED = {"token_log_probs", "kl_divergence"}
"""Losses whose kernels compute parts of rows."""


@dataclass(frozen=True)
class Target:
    """One library."""

    part: str
    """``torch`` (operators and autograd), ``runtime`` (shared by a device's kernels), ``bench``
    (memory probe), ``parts`` (rows sharded into parts), ``loss`` or ``strategies`` (one loss's
    kernels)."""
    device: str = CPU
    loss: str = ""

    @property
    def name(self) -> str:
        """``torch``, ``runtime_cuda``, ``bench_cpu``, ``mse_cuda``, ``mse_strategies_cuda``."""
        if self.part == TORCH:
            return TORCH
        stem = {LOSS: self.loss, STRATEGIES: f"{self.loss}_strategies"}.get(self.part, self.part)
        return f"{stem}_{self.device}"

    @property
    def is_of_rows(self) -> bool:
        """Whether these are a row-wise loss's kernels."""
        return self.part == LOSS and self.loss in ROW_LOSSES

    @property
    def loss_header(self) -> str:
        """The loss's header under csrc."""
        if self.is_of_rows:
            return f"losses/rows/{ROW_LOSSES[self.loss].header or self.loss}.h"
        return f"losses/elementwise/{inner_name(self.loss)}.h"

    @property
    def unit_folder(self) -> str:
        """The csrc folder of the library's .cpp and .cu files."""
        if self.part == TORCH:
            return "torch/"
        kernels = "rows" if self.is_of_rows else "elementwise"
        folder = {RUNTIME: "core", BENCH: "bench", PARTS: "parts"}.get(self.part, kernels)
        return f"{folder}/{self.device}/"

    @property
    def headers(self) -> tuple[str, ...]:
        """The csrc headers that the library may include, or their folders."""
        if self.part == TORCH:
            kernels = ("elementwise/kernels.h", "rows/kernels.h", "parts/kernels.h")
            losses = ("losses/elementwise/loss.h", "losses/rows/loss.h")
            return ("core/", "torch/", *kernels, "bench/probe.h", *losses)
        if self.part == RUNTIME:
            return ("core/",)
        if self.part == BENCH:
            return ("core/", "bench/", "elementwise/", "reduce/", "losses/elementwise/loss.h")
        shared = ("core/", "reduce/", "elementwise/")
        if self.part == PARTS:
            return (*shared, "rows/", "parts/", "losses/rows/loss.h")
        if self.is_of_rows:
            # Conversion, gathering and streaming of elements are shared.
            return (*shared, "rows/", "losses/rows/loss.h", self.loss_header)
        weighted = ("losses/elementwise/weighted.h",) if is_weighted(self.loss) else ()
        return (*shared, "losses/elementwise/loss.h", self.loss_header, *weighted)


def needed(loss: str, device: str, *, strategies: bool = False) -> list[Target]:
    """Return the libraries for a loss's call, in loading order."""
    part = STRATEGIES if strategies else LOSS
    return [*shared(device), *(Target(part, device, name) for name in operators_for(loss))]


def shared(device: str) -> list[Target]:
    """Return the libraries that all kernels need."""
    return [Target(TORCH), *([Target(RUNTIME, CUDA)] if device == CUDA else [])]


def production(losses: Iterable[str], device: str) -> list[Target]:
    """Return the libraries that losses need."""
    operators = dict.fromkeys(name for loss in losses for name in operators_for(loss))
    parts = [Target(PARTS, device)] if _PARTED & operators.keys() else []
    return [*shared(device), *parts, *(Target(LOSS, device, name) for name in operators)]


def benchmarking(losses: Iterable[str], device: str) -> list[Target]:
    """Return the libraries that only benchmarks need."""
    summed = [loss for loss in losses if not {*operators_for(loss)} & {*ROW_LOSSES}]
    return [Target(BENCH, device), *(Target(STRATEGIES, device, loss) for loss in summed)]


def read_sources(csrc: Path, target: Target) -> Sources:
    """Read the files that can be part of a library."""
    return {
        name: path.read_bytes()
        for path in sorted(csrc.rglob("*"))
        if _belongs(name := path.relative_to(csrc).as_posix(), target)
    }


def is_unit(name: str) -> bool:
    """Tell whether a file is compiled rather than included."""
    return PurePosixPath(name).suffix in _UNITS


def _belongs(name: str, target: Target) -> bool:
    path = PurePosixPath(name)
    other = CUDA if target.device == CPU else CPU
    if other in path.parts[:-1] or (other == CUDA and path.suffix in {".cu", ".cuh"}):
        return False
    if path.suffix in _UNITS:
        return name.startswith(target.unit_folder)
    allowed = (target.unit_folder, *target.headers)
    return path.suffix in _HEADERS and any(
        name.startswith(place) if place.endswith("/") else name == place for place in allowed
    )
