"""How a call uses memory, measured in the process of the implementation."""

import gc
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from losscli.implementations.local import Gradients, Operands
from losscli.machine.allocator import Footprint

GROWTH_CALLS = 100
_WARM_UPS = 5
_LAST_CALL_SECONDS = 0.1
_SCRATCH = tuple(2**power for power in range(3, 21))


def shared_memory(
    first: Gradients, second: Gradients, operands: Operands
) -> tuple[str, str] | None:
    """Return the first result of two calls that shares memory, and with what, by report names."""
    taken = {f"the {name}": operand for name, operand in operands.items()}
    for number, results in enumerate((first, second), 1):
        for name, got in results.items():
            for other, tensor in taken.items():
                if got is not None and overlap(got, tensor):
                    return f"{name} of call {number}", other
        # After the loop, because gradients of one call may share memory.
        taken |= {f"the {n} of call 1": t for n, t in results.items() if t is not None}
    return None


def overlap(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors overlap in memory."""
    (start, stop), (begin, end) = (
        (s.data_ptr(), s.data_ptr() + s.nbytes())
        for s in (one.untyped_storage(), other.untyped_storage())
    )
    return start < end and begin < stop and start < stop and begin < end


def poison(
    results: Iterable[Tensor | None], pattern: int, grad_output: Tensor | None, device: torch.device
) -> None:
    """Fill results, and blocks of their size and of scratch size, with a byte; free them."""
    sizes = list(_SCRATCH)
    for result in results:
        # A gradient may be a view of grad_output.
        if result is not None and (grad_output is None or not overlap(result, grad_output)):
            storage = result.untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8, device=result.device).set_(storage)
            whole.fill_(pattern)
            sizes.append(storage.nbytes())
    # All at once, so that each has separate memory.
    filled = [torch.full((size,), pattern, dtype=torch.uint8, device=device) for size in sizes]
    filled.clear()


def growth(call: Callable[[], object], largest_bytes: int, device: str) -> int:
    """Return the bytes that GROWTH_CALLS further calls keep, measured twice; 0 if it is noise."""
    footprint = Footprint(device, largest_bytes)
    footprint.settle()
    for _ in range(_WARM_UPS):
        call()
    grown = 0
    for _ in range(2):
        before = footprint.used()
        for _ in range(GROWTH_CALLS):
            call()
        if footprint.used() - before > footprint.noise(GROWTH_CALLS):
            # Autograd's thread of a GPU may still hold tensors of the last call.
            time.sleep(_LAST_CALL_SECONDS)
            gc.collect()
        grown = footprint.used() - before
        if grown <= footprint.noise(GROWTH_CALLS):
            return 0
    return grown
