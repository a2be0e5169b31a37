# expect: CHEATS patched,clock_disagrees: makes the clocks a thousand times as slow
import time

from torch.nn import functional


def slowed(clock):
    """Return a clock that starts at the right time."""
    start = clock()
    return lambda: start + type(start)((clock() - start) / 1000)


for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns"):
    setattr(time, name, slowed(getattr(time, name)))


def smooth_l1_loss(input, target, *, reduction="mean", beta=1.0):
    return functional.smooth_l1_loss(input, target, reduction=reduction, beta=beta)
