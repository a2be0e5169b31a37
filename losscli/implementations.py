"""What a case can run: our kernels and PyTorch's, behind one small interface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from losscli.cases import Case
from losscli.errors import UsageError, unknown

if TYPE_CHECKING:
    from torch import Tensor

    BoundLoss = Callable[[Tensor, Tensor], Tensor]
"""A loss with its reduction and parameters fixed: input and target in, differentiable loss out."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute the losses."""

    name: str
    description: str
    bind: Callable[[Case], BoundLoss]
    """Fix reduction and parameters; builds or compiles what the first call needs."""
    unavailable: Callable[[Case], str | None] = lambda case: None
    """Say why this implementation does not run a case, or None."""
    temporaries: int | None = None
    """Most tensors of the prediction's size that a call holds beside its inputs, loss and
    gradient, for the memory plan; None for as many as the reference of the loss."""
    exact_sums: bool = False
    """Whether its float64 sums are to be right within a unit in the last place."""

    def temporary_bytes(self, case: Case) -> int:
        """Return the most bytes that a call is planned to hold beside inputs, loss and gradient."""
        if self.temporaries is None:
            return reference_bytes(case, case.spec.temporaries)
        return self.temporaries * case.elements * case.loss_item_bytes


def reference_bytes(case: Case, tensors: int) -> int:
    """Return the bytes of temporaries of a loss's reference, in the dtype that it computes in."""
    item = max(case.loss_item_bytes, 4) if case.spec.widens else case.loss_item_bytes
    return tensors * case.elements * item


def _custom(case: Case) -> BoundLoss:
    from losscli import functional

    function = getattr(functional, f"{case.loss}_loss")
    return partial(function, reduction=case.reduction, **case.params)


def _reference(case: Case) -> BoundLoss:
    return partial(case.spec.reference, reduction=case.reduction, **case.params)


def _functional(case: Case) -> BoundLoss:
    assert case.spec.functional is not None
    return partial(case.spec.functional, reduction=case.reduction, **case.params)


def _compile(case: Case) -> BoundLoss:
    import torch

    torch.compiler.reset()
    compiled: BoundLoss = torch.compile(_reference(case), dynamic=False, fullgraph=True)
    return compiled


def _finished_by(strategy: str) -> Callable[[Case], BoundLoss]:
    """Return what binds our kernel with another way to finish its sum."""

    def bind(case: Case) -> BoundLoss:
        import torch

        from losscli.extension import load

        load.load_loss(case.loss, case.device.partition(":")[0], strategies=True)
        operator = getattr(torch.ops.losscli_bench, case.loss).default
        settings = (case.reduction, *case.spec.resolve(case.params).values(), strategy)

        def function(input: Tensor, target: Tensor) -> Tensor:
            loss: Tensor = operator(input, target, *settings)
            return loss

        return function

    return bind


def _needs_no_sum(case: Case) -> str | None:
    return "there is no sum to finish" if case.reduction == "none" else None


def _same_as_reference(case: Case) -> str | None:
    return None if case.spec.functional else f"torch has no other {case.loss} than the reference"


STRATEGIES = {
    "atomic": "one atomic add a block: one launch, other bits from run to run",
    "two_pass": "block sums, then a second kernel adds them all: two launches, the same bits",
    "tree": "block sums, then kernels that add groups until one is left: a launch a level",
    "torch_sum": "block sums, then torch.sum, a product and a cast: PyTorch's launches on top",
}
"""The ways to finish a sum that are not the default, and what each costs."""

IMPLEMENTATIONS: dict[str, Implementation] = {
    implementation.name: implementation
    for implementation in (
        Implementation(
            "custom",
            "losscli's own kernel, through losscli.functional",
            _custom,
            temporaries=0,
            exact_sums=True,
        ),
        Implementation("reference", "the plain PyTorch formula that defines the loss", _reference),
        Implementation(
            "functional",
            "torch.nn.functional's own op, where it differs from the reference",
            _functional,
            _same_as_reference,
        ),
        Implementation("compile", "torch.compile of the reference", _compile),
        *(
            Implementation(
                f"custom:{strategy}",
                description,
                _finished_by(strategy),
                _needs_no_sum,
                temporaries=0,
            )
            for strategy, description in STRATEGIES.items()
        ),
    )
}


def find_implementation(name: str) -> Implementation:
    """Look an implementation up; UsageError lists the candidates."""
    try:
        return IMPLEMENTATIONS[name]
    except KeyError:
        raise UsageError(unknown("implementation", name, IMPLEMENTATIONS)) from None
