"""What a call does to the memory of its process: to be asked where the implementation runs."""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import Tensor

from losscli.implementations.call_data import Answer, Call
from losscli.machine.allocations import Footprint

GROWTH_CALLS = 100
_WARM_UPS = 5
_SCRATCH = tuple(2**power for power in range(3, 21))
"""Bytes of blocks that scratch memory may be cut from."""


def shared_memory(first: Answer, second: Answer, call: Call) -> tuple[str, str] | None:
    """Return the first result of two calls that shares memory, and with what; None if none does."""
    taken = {f"the {name}": operand for name, operand in call.operands.items()}
    for number, answer in enumerate((first, second), 1):
        for name, got in answer.items().items():
            for other, tensor in taken.items():
                if got is not None and overlap(got, tensor):
                    return f"{name} of call {number}", other
        # After the loop: a gradient may well share memory with another of the same call.
        taken |= {f"the {n} of call 1": t for n, t in answer.items().items() if t is not None}
    return None


def overlap(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors lie in memory that overlaps."""
    (start, stop), (begin, end) = (
        (s.data_ptr(), s.data_ptr() + s.nbytes())
        for s in (one.untyped_storage(), other.untyped_storage())
    )
    return start < end and begin < stop and start < stop and begin < end


def poison(answer: Answer, pattern: int, call: Call) -> None:
    """Fill the memory of a result, and blocks of its size and of scratch memory's; free them."""
    sizes = list(_SCRATCH)
    for result in answer.items().values():
        # A gradient may be a view of the incoming one.
        if result is not None and (
            call.grad_output is None or not overlap(result, call.grad_output)
        ):
            storage = result.untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8, device=result.device).set_(storage)
            whole.fill_(pattern)
            sizes.append(storage.nbytes())
    # All at once, so that each has memory of its own.
    filled = [
        torch.full((size,), pattern, dtype=torch.uint8, device=call.prediction.device)
        for size in sizes
    ]
    filled.clear()


def growth(answer: Callable[[Call], Answer], call: Call, device: str) -> int:
    """Return the bytes that GROWTH_CALLS more calls take; 0 if it is noise.

    Twice, so that a cache may fill.
    """
    footprint = Footprint(device, max(each.nbytes for each in call.operands.values()))
    footprint.settle()
    for _ in range(_WARM_UPS):
        answer(call)
    grown = 0
    for _ in range(2):
        before = footprint.used()
        for _ in range(GROWTH_CALLS):
            answer(call)
        grown = footprint.used() - before
        if grown <= footprint.noise(GROWTH_CALLS):
            return 0
        gc.collect()
    return grown
