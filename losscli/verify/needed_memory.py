"""The memory that verifying a case needs, planned before anything is allocated."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from losscli.cases.axes import PassName
from losscli.cases.case import Case
from losscli.implementations import Implementation, reference_bytes
from losscli.implementations.allowance import Allowance
from losscli.reasons import Code, Reason
from losscli.truth.blocks import block_elements, linear_oracle_bytes
from losscli.units import format_bytes


@dataclass(frozen=True)
class Held:
    """The memory that a check holds at once."""

    operands: int = 1
    results: int = 1
    """Losses with their gradients."""
    streams: int = 1
    """Streams and graphs, each with its own temporaries of a call."""


_ONE = Held()


def bytes_to_verify(
    case: Case, pass_: PassName, implementations: Iterable[Implementation], held: Held = _ONE
) -> int:
    """Return the bytes that verifying the largest of these implementations needs, with inputs."""
    input, loss = case.elements * case.item_bytes, case.loss_bytes
    names = case.spec.differentiable[1:]
    others = sum(case.operand_bytes[name] for name in names)
    backward = pass_ == "forward_backward"
    results = held.results * (loss + input + (others if backward else 0))
    own = held.streams * max((i.temporary_bytes(case) for i in implementations), default=0)
    # Only backward needs two of the reference's temporaries.
    reference = reference_bytes(case, max(case.spec.temporaries - 2, 0))
    most = max(reference, results + own)
    most += (held.operands - 1) * case.stored_bytes + (loss if backward else 0)
    shapes = (case.shapes[name] for name in names)
    sums = 2 * max((math.prod(s) for s in shapes if s != case.shape), default=0)
    # In float64; oracle and comparison hold twelve besides the reference's.
    held_of_block = 12 + case.spec.temporaries + case.spec.term_tensors
    block = held_of_block * min(case.elements, block_elements(case.device))
    return case.stored_bytes + most + (sums + block) * 8 + linear_oracle_bytes(case)


def choose_fitting(
    case: Case,
    pass_: PassName,
    implementations: Sequence[Implementation],
    free: int,
    held: Held = _ONE,
) -> tuple[list[Implementation], dict[str, Reason]]:
    """Return the implementations that fit, each alone, and why the others do not."""
    reasons = {}
    for each in implementations:
        text = ""
        if (needed := bytes_to_verify(case, pass_, [each], held)) > free:
            text = f"needs {format_bytes(needed)}, {case.device} has {format_bytes(free)} free"
        if each.file and case.device == "cpu":
            own = each.temporary_bytes(case)
            if own > (most := (each.setting.allowance or Allowance()).bytes_of(free)):
                text = f"its process needs {format_bytes(own)}, and may take {format_bytes(most)}"
        if text:
            reasons[each.name] = Reason(Code.INSUFFICIENT_MEMORY, text)
    return [i for i in implementations if i.name not in reasons], reasons
