"""An implementation as data: a name, and a function that binds it to a case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from losscli.losses import LinearSpec
from losscli.reasons import Reason

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.cases.case import Case
    from losscli.implementations.allowance import Allowance
    from losscli.implementations.source import Source
    from losscli.losses.linear.plan import Plan

    BoundLoss = Callable[..., Tensor]
"""A loss with its reduction and parameters fixed: its operands in, in the spec's order,
differentiable loss out."""


_ANY = 2**62
"""Bytes of more memory than any device has."""
CUSTOM = "custom"
"""The name of losscli's own kernels, before the colon of a strategy."""


def is_own(name: str) -> bool:
    """Tell whether an implementation is losscli's: ``custom`` or ``custom:STRATEGY``."""
    return name.partition(":")[0] == CUSTOM


@dataclass(frozen=True)
class Setting:
    """How to judge a file: its workers' limits and what is known so far."""

    allowance: Allowance | None = None
    """None for the usual one."""
    order: tuple[str, ...] = ()
    """The order in which operands are given; empty to find it."""
    require_isolation: bool = False
    """Whether it is not to run where a part of the walls is missing."""
    mends: bool = False
    """Whether a result that fits in value alone is reduced, reshaped and converted as is due."""
    lacking: tuple[str, ...] = ()
    """Operands of which it has no gradient, as PyTorch's own function has none."""
    built: str = ""
    """A file that holds what it has compiled, with which later workers begin."""


PLAIN = Setting()
"""How a file is run that is not judged."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute the losses."""

    name: str
    description: str
    bind: Callable[[Case], BoundLoss]
    """Fix reduction and parameters; builds or compiles what the first call needs."""
    unavailable: Callable[[Case], Reason | None] = lambda case: None
    """Say why this implementation does not run a case, or None."""
    temporaries: int | None = None
    """Most tensors of the prediction's size that a call holds beside its inputs, loss and
    gradient, for the memory plan; None for as many as the reference of the loss. Of hidden states
    tensors of the logits' size; there 0 is what losscli's own plan takes."""
    exact_sums: bool = False
    """Whether its float64 sums have to be right within a unit in the last place."""
    fixed_order: bool = False
    """Whether it promises a fixed order of each sum, whatever runs beside it."""
    held_to_oracle: bool = False
    """Whether it fails even where PyTorch's own formula is as wrong: an implementation that takes
    parameters in float64, while PyTorch rounds them to its computing dtype."""
    torchs_own: bool = False
    """Whether it is what people call in PyTorch, whatever digits that loses: what it gets wrong is
    PyTorch's own difference, a warning. Bench times it where it is right as a whole."""
    file: Source | None = None
    """The file of somebody else that defines it, which runs in a process of its own."""
    setting: Setting = PLAIN
    """How that file is judged."""

    def but(self, **changes: Any) -> Implementation:
        """Return the same file's implementation with changed settings."""
        return replace(self, setting=replace(self.setting, **changes))

    def temporary_bytes(self, case: Case) -> int:
        """Return the planned peak temporary bytes, without inputs, loss and gradients."""
        if self.file:  # another process has operands and results of its own
            copies = 2 * case.stored_bytes + 2 * case.elements * case.loss_item_bytes
            return copies + reference_bytes(case, case.spec.temporaries)
        if self.temporaries is None:
            return reference_bytes(case, case.spec.temporaries)
        if self.temporaries == 0 and (plan := plan_of(case)):
            return plan.bytes
        return self.temporaries * case.temporary_elements * case.loss_item_bytes


def reference_bytes(case: Case, tensors: int) -> int:
    """Return the temporary bytes of a reference formula in its compute dtype."""
    item = max(case.loss_item_bytes, 4) if case.spec.widens else case.loss_item_bytes
    return tensors * case.temporary_elements * item


def plan_of(case: Case, *, gradients: bool = True, free: int = _ANY) -> Plan | None:
    """Return losscli's plan for a case's logits, or None if there is none that fits."""
    if not isinstance(case.spec, LinearSpec):
        return None
    given = case.shape, case.item_bytes, case.reduction, case.params
    with suppress(ValueError):
        return case.spec.plan(*given, gradients=gradients, free=free)
    return None
