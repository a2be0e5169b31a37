"""Load the kernels into PyTorch, building first what is missing."""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path

from losscli.errors import BuildError, LosscliError

loaded = False
"""Whether ``torch.ops.losscli`` can be used."""

_lock = threading.Lock()


def load() -> None:
    """Make ``torch.ops.losscli`` usable; from the second call on this does nothing.

    The CUDA kernels come along where PyTorch sees a GPU and there is an nvcc to build them with;
    without them the operators refuse CUDA tensors.

    Raises:
        UnfitError: a library has to be built and there is no compiler, or nowhere to write.
        BuildError: a compiler failed, or the finished library does not load.
    """
    global loaded
    with _lock:
        if not loaded:
            _load()
            loaded = True


def _load() -> None:
    import torch

    from . import fake
    from .architectures import present_capabilities
    from .build import ensure, plan_cuda
    from .cache import user_cache
    from .plan import cpu_plan, csrc_root, installed_torch
    from .toolchain import find_compiler

    cache, csrc, compiler = user_cache(), csrc_root(), find_compiler()
    library = ensure(cpu_plan(csrc, compiler, installed_torch()), cache, notify=_notify).path
    assert library
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise BuildError(
            f"{library} does not load: {error.__cause__ or error}. "
            "Run `losscli build --force`; if that does not help, reinstall torch."
        ) from None
    fake.register()
    # Whoever has touched a GPU is about to need its kernels; anybody else does well without.
    needs_cuda = torch.cuda.is_initialized()
    if not present_capabilities():
        return
    try:
        engine = ensure(plan_cuda(csrc, compiler), cache, notify=_notify).path
    except LosscliError as error:
        if needs_cuda:
            raise
        _notify(f"going on without CUDA kernels: {error}")
        return
    assert engine
    _register_cuda(library, engine)


def _register_cuda(library: Path, engine: Path) -> None:
    """Hand the CUDA library's tables of entry points to the binding."""
    cuda, binding = ctypes.CDLL(str(engine)), ctypes.CDLL(str(library))
    for table in ("engine", "probe"):
        entry_points = getattr(cuda, f"losscli_cuda_{table}")
        entry_points.restype = ctypes.c_void_p
        register = getattr(binding, f"losscli_register_cuda_{table}")
        register.argtypes = [ctypes.c_void_p]
        register(entry_points())


def _notify(line: str) -> None:
    print(f"losscli: {line}", file=sys.stderr, flush=True)
