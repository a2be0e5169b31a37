"""Loads libraries when first needed, and builds missing ones."""

import ctypes
import functools
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from losscli.build import targets
from losscli.build.targets import Target
from losscli.console.notes import note
from losscli.errors import BuildError, LosscliError, UsageError
from losscli.losses import LOSSES, ROW_LOSSES, WEIGHTED

if TYPE_CHECKING:
    from losscli.build.compilers import Compilers

_lock = threading.RLock()
_loaded: dict[Target, ctypes.CDLL] = {}


def load(device: str | None = None) -> None:
    """Load the operators' implementation and a device's kernels; see :func:`losscli.load`."""
    kind = device.partition(":")[0] if device else None
    if kind and kind not in targets.DEVICES:
        raise UsageError(f"device must be cpu, cuda or cuda:N, but is '{device}'")
    losses = (*LOSSES, *ROW_LOSSES)
    load_targets(targets.production(losses, kind) if kind else [Target(targets.TORCH)])


def load_loss(loss: str, device: str, *, strategies: bool = False) -> None:
    """Load the libraries for a loss on ``cpu`` or ``cuda``."""
    load_targets(targets.needed(loss, device, strategies=strategies))


def load_parts(device: str) -> None:
    """Load the operators of parts, such as ``join_parts``."""
    load_targets([*targets.shared(device), Target(targets.PARTS, device)])


def load_probe(device: str) -> None:
    """Load ``torch.ops.losscli_bench.memory_probe``."""
    load_targets([*targets.shared(device), Target(targets.BENCH, device)])


def load_targets(wanted: Iterable[Target]) -> None:
    """Load libraries; build missing ones in parallel."""
    with _lock:
        if not (missing := [target for target in wanted if target not in _loaded]):
            return
        for target, path in zip(missing, _obtain(missing), strict=True):
            try:
                library = ctypes.CDLL(str(path))
            except OSError as error:
                raise BuildError(
                    f"{path} does not load: {error}. Run `losscli build --force`; if that does not "
                    "help, reinstall torch."
                ) from None
            _attach(target, library)
            _loaded[target] = library


def build_ahead(wanted: Sequence[Target]) -> None:
    """Build missing libraries together, before other processes load them and report errors."""
    if wanted:
        with suppress(LosscliError):
            _obtain(wanted)


def _obtain(wanted: Sequence[Target]) -> list[Path]:
    from losscli.build import builder, cache, compilers, plan

    compilers.require_platform()
    builds = builder.Builder(_compilers(), cache.user_cache(), plan.csrc_root(), note)
    return [each.path for each in builds.obtain(wanted) if each.path]


@functools.cache
def _compilers() -> "Compilers":
    from losscli.build.compilers import Compilers
    from losscli.build.plan import installed_torch

    return Compilers(installed_torch())


def _attach(target: Target, library: ctypes.CDLL) -> None:
    if target.part == targets.TORCH:
        for loss in LOSSES | WEIGHTED:
            _call(library, "losscli_attach_loss", loss.encode())
        for spec in ROW_LOSSES.values():
            words = (spec.name.encode(), spec.roles.encode(), spec.doubling.encode())
            flags = (int(spec.second_dimension), int(spec.wide))
            _call(library, "losscli_attach_row_loss", *words, *flags)
        return
    torch, device = _loaded[Target(targets.TORCH)], target.device.encode()
    if name := _TABLES.get(target.part):
        _call(torch, f"losscli_attach_{name}", device, _table(library, f"losscli_{name}"))
    elif target.is_of_rows:
        table = _table(library, "losscli_row_kernels")
        _call(torch, "losscli_attach_row_kernels", target.loss.encode(), device, table)
    else:
        strategies = int(target.part == targets.STRATEGIES)
        table = _table(library, "losscli_kernels")
        _call(torch, "losscli_attach_kernels", target.loss.encode(), device, strategies, table)


_TABLES = {targets.RUNTIME: "runtime", targets.BENCH: "probe", targets.PARTS: "part_kernels"}
"""The tables of functions of libraries that serve all losses."""


def _table(library: ctypes.CDLL, name: str) -> ctypes.c_void_p:
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    return ctypes.c_void_p(function())


def _call(library: ctypes.CDLL, name: str, *arguments: bytes | int | ctypes.c_void_p) -> None:
    # It returns null or an error message.
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    if wrong := function(*arguments):
        raise BuildError(wrong.decode(errors="replace"))
