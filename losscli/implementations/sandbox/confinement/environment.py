"""What a candidate sees of the judge's environment and cache."""

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from losscli.build import headers
from losscli.build.plan import STEERING_VARIABLES
from losscli.files.directories import CACHE_VARIABLE, LOCKS, cache_directory
from losscli.machine import allocator

KEPT = (
    *("PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "MAX_JOBS"),
    *("CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "TORCH_CUDA_ARCH_LIST", *STEERING_VARIABLES),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE"),
    *("TRITON_PTXAS_PATH", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_CPP_LOG_LEVEL"),
    *("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUSERBASE", "VIRTUAL_ENV"),
)
"""Variables that locate and configure compilers, libraries and devices."""
KEPT_BEGINNINGS = (
    *("LC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_"),
    *("ATEN_CPU_", "CUDA_", "CUBLAS_", "CUDNN_", "PYTORCH_CUDA_", "PYTORCH_ALLOC_"),
)
"""Prefixes of further variables, which hold no secrets."""
CACHES = {
    "TORCH_EXTENSIONS_DIR": "extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
    "XDG_CACHE_HOME": "cache",
    "HOME": "home",
    "TMPDIR": "tmp",
}
"""The worker's own folders, by variable."""
USER = "user"


def of_workers(given: Mapping[str, str], *, cached: bool = False) -> dict[str, str]:
    """Return the environment of workers, perhaps with the kernel cache."""
    found = {n: v for n, v in given.items() if n in KEPT or n.startswith(KEPT_BEGINNINGS)}
    found |= allocator.SMALL_PAD if allocator.keeps() else {}
    # A pool of torch.compile's would outlive a call. What a zygote imports reads this at once.
    found["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if path := headers.search_path(given.get("CPATH", "")):
        found["CPATH"] = path
    if cached:
        found[CACHE_VARIABLE] = str(cache_directory("kernels").absolute())
    return found


def hidden_from_workers(*, cached: bool) -> list[str]:
    """Return paths of the cache to hide: all, or all but the kernels."""
    root = cache_directory("kernels").absolute()
    private = (LOCKS, "lock", "verdicts", "runs", "scratch", "work") if cached else ("",)
    return [str(root / name) for name in private]


def of_candidate(given: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return the environment of a candidate with its own folders."""
    own = {name: f"{scratch}/{folder}" for name, folder in CACHES.items()}
    return {**given, **own, "USER": USER, "LOGNAME": USER}


def forget_start() -> None:
    """Overwrite this process's command line and environment in /proc."""
    environ = dict(os.environ)
    os.environ.clear()
    os.environ.update(environ)  # C's are copies now
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    first, last, *environment = map(int, fields[45:49])
    command = b"python\0main.py\0"
    if 0 < len(command) <= last - first and environment[0]:
        ctypes.memset(first, 0, last - first)
        ctypes.memmove(first, command, len(command))
        ctypes.memset(environment[0], 0, environment[1] - environment[0])
    sys.argv, sys.orig_argv = ["main.py"], ["python", "main.py"]
