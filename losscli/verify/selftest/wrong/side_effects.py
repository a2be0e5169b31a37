"""Losses with side effects on memory, later calls or the process, on purpose."""

import os
import random
import signal
import time
from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.implementation import BoundLoss
from losscli.verify.selftest.surgery import formula, graft, reduced, unreduced


def in_place(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """Writes over its input."""
    loss = formula(case, input, *others)
    with torch.no_grad():
        input.view_as(input).mul_(0.5)  # stays in the domain of every loss
    return loss


def cached(case: Case) -> BoundLoss:
    """Returns memoized results by address."""
    known: dict[object, Tensor] = {}

    def function(*operands: Tensor) -> Tensor:
        loss = formula(case, *operands)
        key = (*(operand.data_ptr() for operand in operands), operands[0].shape)
        return graft(known.setdefault(key, loss.detach().clone()), loss)

    return function


def first_call_only(case: Case) -> BoundLoss:
    """Is right only at the first call."""
    calls = count()

    def function(*operands: Tensor) -> Tensor:
        loss = formula(case, *operands)
        return graft(loss.detach() * 2, loss) if next(calls) else loss

    return function


def uninitialised(case: Case, *operands: Tensor) -> Tensor:
    """Adds up blocks of memory, the last of which was never written."""
    elements = unreduced(case, *operands)
    if case.reduction == "none":
        out = torch.empty_like(elements)
        out.flatten()[:-1] = elements.detach().flatten()[:-1]
        return graft(out, elements)
    rows = torch.empty(len(elements) + 1, dtype=elements.dtype, device=elements.device)
    rows[:-1] = elements.detach().flatten(1).sum(1) if elements.dim() > 1 else elements.detach()
    return graft(reduced(case, rows, elements.numel()), reduced(case, elements))


def beyond_the_end(case: Case, input: Tensor, *others: Tensor) -> Tensor:
    """Reads the element behind the last, if there is memory."""
    loss = formula(case, input, *others)
    behind = input.storage_offset() + input.numel()
    if not input.is_contiguous() or behind >= input.untyped_storage().nbytes() // input.itemsize:
        return loss
    more = input.detach().as_strided((1,), (1,), behind)
    return graft(loss.detach() + 0 * more.sum(), loss)


def unsteady(loss: Tensor) -> Tensor:
    """Differs from call to call."""
    noise = random.SystemRandom().random() * 1e-3  # which changes no random state
    return loss * (1 + noise)


def leaves(change: Callable[[], object], case: Case, *operands: Tensor) -> Tensor:
    """Changes the process's state."""
    loss = formula(case, *operands)
    change()
    return loss


def _patch(module: object, name: str) -> None:
    original = getattr(module, name)
    setattr(module, name, lambda *given, **settings: original(*given, **settings))


GLOBAL_STATE: dict[str, Callable[[], object]] = {
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "torch's random state": lambda: torch.manual_seed(1),
    "Python's random state": lambda: random.seed(1),
    "grad mode": lambda: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "flush-denormal mode": lambda: torch.set_flush_denormal(True),
    "TF32 of products": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "determinism of algorithms": lambda: torch.use_deterministic_algorithms(True),
    "environment variables": lambda: os.environ.update(LOSSCLI_SELF_TEST="changed"),
    "signal handlers": lambda: signal.signal(signal.SIGUSR2, lambda *_: None),
    "functions of torch": lambda: _patch(torch.nn.functional, "l1_loss"),
    "functions of Python": lambda: _patch(time, "monotonic"),
}
