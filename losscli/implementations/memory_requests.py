"""Requests for how a call uses memory."""

import gc
import time
from functools import partial

import torch
from torch import Tensor

from losscli.implementations.local import LocalSubject
from losscli.implementations.requests import Answer, AnswerOf, Call, Request
from losscli.machine.allocator import GPU_BLOCK_BYTES, give_back, measure_peak, used_bytes

GROWTH_CALLS = 100
_WARM_UPS = 5
_LAST_CALL_SECONDS = 0.1


class SharedMemory(Request[tuple[str, str] | None], frozen=True):
    """The first result of two calls that shares memory, and what it shares it with, or None."""

    call: Call

    def perform(self, local: LocalSubject) -> tuple[str, str] | None:
        both = [local.send(self.call).items() for _ in range(2)]
        taken = {f"the {name}": operand for name, operand in self.call.operands.items()}
        for number, results in enumerate(both, 1):
            for name, got in results.items():
                for other, tensor in taken.items():
                    if got is not None and overlap(got, tensor):
                        return f"{name} of call {number}", other
            # After the loop, because gradients of one call may share memory.
            taken |= {f"the {n} of call 1": t for n, t in results.items() if t is not None}
        return None


class Poisoned(AnswerOf, frozen=True):
    """The answer with memory that results may reuse filled with one byte."""

    pattern: int

    def perform(self, local: LocalSubject) -> Answer:
        self._poison(local.send(self.call), local.device)
        return local.send(self.call)

    def _poison(self, answer: Answer, device: str) -> None:
        """Fill results, and blocks of their size and of scratch size; free them."""
        sizes, given = [2**power for power in range(3, 21)], self.call.grad_output
        for result in answer.items().values():
            # A gradient may be a view of grad_output.
            if result is not None and (given is None or not overlap(result, given)):
                storage = result.untyped_storage()
                whole = torch.empty(0, dtype=torch.uint8, device=result.device).set_(storage)
                whole.fill_(self.pattern)
                sizes.append(storage.nbytes())
        # All at once, so that each has separate memory.
        filled = [torch.full((n,), self.pattern, dtype=torch.uint8, device=device) for n in sizes]
        filled.clear()


class Growth(Request[int], frozen=True):
    """The bytes that GROWTH_CALLS more calls keep, measured twice; 0 if that is noise."""

    call: Call

    def perform(self, local: LocalSubject) -> int:
        device, noise = local.device, GROWTH_CALLS * (GPU_BLOCK_BYTES - 1)
        if device == "cpu":
            noise = GROWTH_CALLS * (max(each.nbytes for each in self.call.operands.values()) // 4)
            give_back()  # so that kept memory shows
        for _ in range(_WARM_UPS):
            local.send(self.call)
        grown = 0
        for _ in range(2):
            before = used_bytes(device)
            for _ in range(GROWTH_CALLS):
                local.send(self.call)
            if used_bytes(device) - before > noise:
                # Autograd's thread of a GPU may still hold tensors of the last call.
                time.sleep(_LAST_CALL_SECONDS)
                gc.collect()
            grown = used_bytes(device) - before
            if grown <= noise:
                return 0
        return grown


class ExtraBytes(Request[int], frozen=True):
    """The peak memory of a call beyond its results."""

    call: Call

    def perform(self, local: LocalSubject) -> int:
        answer = local.send(self.call)  # the first call may keep memory
        results = sum(result.nbytes for result in answer.items().values() if result is not None)
        del answer
        return measure_peak(partial(local.send, self.call), local.device) - results


def overlap(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors overlap in memory."""
    storages = one.untyped_storage(), other.untyped_storage()
    stop = min(each.data_ptr() + each.nbytes() for each in storages)
    return max(each.data_ptr() for each in storages) < stop
