"""Kernels of other projects for cross entropy, where their packages are installed.

They are called as their own documentation calls them, and judged before they are timed, as any
implementation. cut_cross_entropy is none of them: it takes embeddings and a classifier, not logits.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from losscli.implementations.implementation import Implementation
from losscli.reasons import Reason

if TYPE_CHECKING:
    from torch import Tensor

    from losscli.cases import Case
    from losscli.implementations.implementation import BoundLoss

LOSS = "cross_entropy"
"""The only loss that they have: of class numbers, without a weight that has a gradient."""


def _liger(case: Case) -> BoundLoss:
    import torch
    from liger_kernel.transformers.functional import liger_cross_entropy

    params = case.settings
    call = partial(
        liger_cross_entropy,
        reduction=case.reduction,
        ignore_index=params["ignore_index"],
        label_smoothing=params["label_smoothing"],
        lse_square_scale=params["z_loss"],
        softcap=params["softcap"] or None,
    )

    def loss(input: Tensor, target: Tensor) -> Tensor:
        # Its gradient is written over the logits, which the next call still has to find.
        own = input.clone() if input.requires_grad and torch.is_grad_enabled() else input
        found: Tensor = call(own, target)
        return found

    return loss


def _quack(case: Case) -> BoundLoss:
    from quack.cross_entropy import cross_entropy

    settings = {"reduction": case.reduction, "ignore_index": case.settings["ignore_index"]}

    def loss(input: Tensor, target: Tensor) -> Tensor:
        found: Tensor = cross_entropy(input, target, **settings)
        return found.to(input.dtype)  # it is float32 for 16 bits as well

    return loss


def _unavailable(package: str, settings: frozenset[str], case: Case) -> Reason | None:
    """Say why a package does not run a case, from the parameters that it takes."""
    name = package.partition("_")[0]
    if case.loss != LOSS:
        return Reason("not_applicable", f"{name} has no {case.loss}")
    for parameter in case.spec.parameters:
        if parameter.name not in settings and case.params[parameter.name] != parameter.default:
            return Reason("not_applicable", f"{name} takes no {parameter.name}")
    if case.dtype == "float64":
        return Reason("not_applicable", f"{name} takes no float64")
    if case.device == "cpu":
        return Reason("no_gpu", f"{name} runs only on a GPU")
    if find_spec(package) is None:
        text = f"{package} is not installed. Install it with `pip install 'losscli[peers]'`"
        return Reason("not_applicable", text)
    return None


_LIGER_SETTINGS = frozenset({"ignore_index", "label_smoothing", "z_loss", "softcap"})
PACKAGES = (
    Implementation(
        "liger",
        "Liger Kernel's cross entropy, on a copy of the logits, which it overwrites",
        _liger,
        partial(_unavailable, "liger_kernel", _LIGER_SETTINGS),
        temporaries=2,
    ),
    Implementation(
        "quack",
        "quack's cross entropy",
        _quack,
        partial(_unavailable, "quack", frozenset({"ignore_index"})),
        temporaries=1,
    ),
)
