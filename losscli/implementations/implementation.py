"""Implementations as data, bound to a case on use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from losscli.losses import LinearSpec
from losscli.machine.pytorch import Tensor
from losscli.reasons import Reason

if TYPE_CHECKING:
    from losscli.cases.case import Case
    from losscli.implementations.allowance import Allowance
    from losscli.implementations.source import Source
    from losscli.losses.linear.logits_plan import Plan

BoundLoss = Callable[..., Tensor]
"""A loss with fixed reduction and parameters: operands in spec order to a differentiable loss."""
CUSTOM = "custom"
"""losscli's own kernels, before the colon of a strategy."""


def is_own(name: str) -> bool:
    """Tell whether an implementation is losscli's: ``custom`` or ``custom:STRATEGY``."""
    return name.partition(":")[0] == CUSTOM


Mend = Literal["results", "operands", "gradients"]
"""``results`` are reduced, reshaped and converted; ``operands`` are copied before each call, which
overwrites them; if one of the ``gradients`` is wanted, all are computed."""
Mends = tuple[Mend, ...]


@dataclass(frozen=True)
class Setting:
    """How to run a file: its workers' limits and what is known so far."""

    allowance: Allowance | None = None
    order: tuple[str, ...] = ()
    """The order of operands; empty to infer it."""
    require_isolation: bool = False
    mends: Mends = ()
    lacking: tuple[str, ...] = ()
    """Operands without a gradient, as in PyTorch's own function."""
    labels: bool = False
    """Whether targets must be labels 0 and 1, not values in between."""
    whole_targets: bool = False
    """Whether its target must have the input's shape, where that of the loss broadcasts."""
    built: str = ""
    """A file with compiled output for later workers."""


PLAIN = Setting()


def _unbound(case: Case) -> BoundLoss:
    raise RuntimeError("it has no loss of whole operands in this process")


@dataclass(frozen=True)
class Implementation:
    """One way to compute the losses."""

    name: str
    description: str
    bind: Callable[[Case], BoundLoss] = _unbound
    """Fixes reduction and parameters; builds or compiles what the first call needs."""
    unavailable: Callable[[Case], Reason | None] = lambda case: None
    temporaries: int | None = None
    """Planned peak temporary tensors of the prediction's size (the logits' for hidden states); None
    for as many as the reference. For hidden states, 0 means losscli's own plan."""
    exact_sums: bool = False
    """Whether float64 sums must be right within one ULP."""
    fixed_order: bool = False
    """Whether it promises a fixed order of sums, whatever runs next to it."""
    held_to_oracle: bool = False
    """Whether it fails even where PyTorch, which rounds parameters, is as wrong."""
    torchs_own: bool = False
    """Whether it is PyTorch's usual function, which may lose digits: its errors are warnings, and
    bench times it if the norm of its error is small."""
    file: Source | None = None
    setting: Setting = PLAIN

    @property
    def source(self) -> Source:
        """The file of one that has a file."""
        assert self.file
        return self.file

    def but(self, **changes: Any) -> Implementation:
        """Return the same implementation with changed settings."""
        return replace(self, setting=replace(self.setting, **changes))

    def temporary_bytes(self, case: Case) -> int:
        """Return the planned peak temporary bytes, without inputs, loss and gradients."""
        if self.file:  # another process has its own operands and results
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


def plan_of(case: Case, *, gradients: bool = True, free: int = 2**62) -> Plan | None:
    """Return losscli's plan for a case's logits in ``free`` bytes, or None if none fits."""
    if not isinstance(case.spec, LinearSpec):
        return None
    given = case.shape, case.item_bytes, case.reduction, case.params
    with suppress(ValueError):
        return case.spec.plan(*given, gradients=gradients, free=free)
    return None
