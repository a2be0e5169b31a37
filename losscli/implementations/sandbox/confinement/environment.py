"""The part of the judge's environment that a candidate sees."""

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from losscli.build.plan import STEERING_VARIABLES

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


def kept(given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a candidate may see, before its process starts."""
    return {
        name: value
        for name, value in given.items()
        if name in KEPT or name.startswith(KEPT_BEGINNINGS)
    }


def of_candidate(given: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return the environment of a candidate whose files are in ``scratch``."""
    own = {name: f"{scratch}/{folder}" for name, folder in CACHES.items()}
    return {**given, **own, "USER": USER, "LOGNAME": USER}


def forget_start() -> None:
    """Overwrite the command line and environment that /proc shows of this process."""
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
