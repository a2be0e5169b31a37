"""Profiles which operators and kernels run in a call, and whose they are."""

import re
import time
from collections.abc import Callable

import msgspec
import torch
from torch.profiler import ProfilerActivity, profile

CALLS = 5
OWN, TRITON, CUBLAS, ATEN = "its own", "Triton", "cuBLAS", "PyTorch"
_OWNERS = (
    (CUBLAS, re.compile("gemm|cublas|cutlass|xmma|cudnn", re.IGNORECASE)),
    (TRITON, re.compile("^triton_|^_?[a-z0-9_]*kernel[a-z0-9_]*$")),
    (ATEN, re.compile(r"at::|c10::|^Mem(cpy|set)|^void .*at::native|cub::")),
)
"""The owners of GPU kernels by name; the first match counts."""
_NO_WORK = ("empty", "zero", "ones", "fill", "detach", "view", "as_strided", "resize", "autograd::")
"""Operators that any kernel needs to allocate and view memory."""


class Ran(msgspec.Struct):
    """The number of operators or kernels, and each owner's share of the time."""

    count: int
    shares: dict[str, float]


def ran(call: Callable[[], object], device: str) -> Ran:
    """Profile a few calls."""
    on_gpu = device != "cpu"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as found:
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        if on_gpu:
            torch.cuda.synchronize(device)
        wall = time.perf_counter() - start
    return _kernels(found) if on_gpu else _operators(found, wall)


def _kernels(found: profile) -> Ran:
    times: dict[str, float] = {}
    names = set()
    for event in found.events() or ():
        if not str(event.device_type).endswith("CUDA"):
            continue
        names.add(event.name)
        owner = next((who for who, pattern in _OWNERS if pattern.search(event.name)), OWN)
        times[owner] = times.get(owner, 0.0) + event.device_time_total
    return _shares(len(names), times)


def _operators(found: profile, wall: float) -> Ran:
    """Return operators on a CPU; time outside of PyTorch's is the kernel's own."""
    of_torch, names = 0.0, set()
    for event in found.key_averages():
        name = event.key.removeprefix("aten::")
        if name.startswith(_NO_WORK):
            wall -= event.self_cpu_time_total * 1e-6
        elif event.key.startswith("aten::"):
            of_torch += event.self_cpu_time_total * 1e-6
            names.add(event.key)
    return _shares(len(names), {ATEN: of_torch, OWN: max(wall - of_torch, 0.0)})


def _shares(count: int, times: dict[str, float]) -> Ran:
    total = sum(times.values())
    return Ran(count, {who: round(took / total, 4) for who, took in times.items()} if total else {})
