"""Cross-entropy kernels of other projects; those of hidden states ignore a budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, cast

from losscli.implementations.implementation import BoundLoss, Implementation
from losscli.losses import aten
from losscli.losses.linear.spec import MEMORY_BUDGET
from losscli.machine.pytorch import Tensor, torch
from losscli.ranks.placements import PLACEMENTS, share
from losscli.reasons import Code, Reason

if TYPE_CHECKING:
    from losscli.cases.case import Case

LOGITS, HIDDEN, BIASED = "cross_entropy", "linear_cross_entropy", "biased_linear_cross_entropy"
OVER_RANKS = f"{LOGITS} over ranks"


@dataclass(frozen=True)
class _Kernel:
    bind: Callable[[Case], BoundLoss]
    settings: frozenset[str]
    reductions: tuple[str, ...] = ("none", "mean", "sum")
    module: str = ""
    """Where it is, if not all versions of the package have it."""


def _kernel(
    path: str, settings: frozenset[str], *reductions: str, overwrites: bool = False
) -> _Kernel:
    """Return a function of another project; ``overwrites``: it writes the gradient over input."""

    def bind(case: Case) -> BoundLoss:
        function = resolve_name(path)
        keywords: dict[str, Any] = {name: case.settings[name] for name in settings}
        if "softcap" in keywords:
            keywords["softcap"] = keywords["softcap"] or None
        if "z_loss" in keywords:
            keywords["lse_square_scale"] = keywords.pop("z_loss")
        keywords["reduction"] = case.reduction

        def loss(input: Tensor, target: Tensor, *layer: Tensor) -> Tensor:
            if overwrites and input.requires_grad and torch.is_grad_enabled():
                input = input.clone()  # the next call needs it
            weight, bias = layer[:1], layer[1:]
            found: Tensor = function(input, *weight, target, *bias, **keywords)
            return found.to(input.dtype)  # some return float32 for 16 bits as well

        return loss

    return _Kernel(bind, settings, reductions or _Kernel.reductions)


def lacking(name: str, takes: Collection[str], case: Case) -> Reason | None:
    """Return a reason if a case sets a parameter that the kernel does not accept."""
    for parameter in case.spec.parameters:
        if parameter.name not in takes and case.params[parameter.name] != parameter.default:
            return Reason(Code.NOT_APPLICABLE, f"{name} takes no {parameter.name}")
    return None


def no_kernels(name: str, case: Case, module: str, installed_by: str) -> Reason | None:
    """Return why a package's GPU kernels cannot run a case of any loss."""
    if case.dtype == "float64":
        return Reason(Code.NOT_APPLICABLE, f"{name} takes no float64")
    if case.device == "cpu":
        return Reason(Code.NO_GPU, f"{name} runs only on a GPU")
    with suppress(ModuleNotFoundError):  # the package of the module
        if find_spec(module):
            return None
    text = f"{module} is not installed. Install it with `pip install '{installed_by}'`"
    return Reason(Code.NOT_APPLICABLE, text)


def _package(
    name: str,
    module: str,
    description: str,
    kernels: Mapping[str, _Kernel],
    temporaries: int,
    installed_by: str = "losscli[peers]",
) -> Implementation:
    """Return an implementation of a package, or of PyTorch without a ``module``."""

    def key(case: Case) -> str:
        return f"{case.loss} over ranks" if case.placement else case.loss

    def unavailable(case: Case) -> Reason | None:
        if not case.placement and [*kernels] == [OVER_RANKS]:
            places = " or ".join(PLACEMENTS)
            text = f"it takes operands that are split over ranks: placement: {places}"
            return Reason(Code.NOT_APPLICABLE, text)
        kernel = kernels.get(key(case))
        if kernel is None:
            return Reason(Code.NOT_APPLICABLE, f"{name} has no {key(case)}")
        if case.reduction not in kernel.reductions:
            return Reason(Code.NOT_APPLICABLE, f"{name} has no reduction {case.reduction}")
        if reason := lacking(name, kernel.settings | {MEMORY_BUDGET.name}, case):
            return reason
        if case.placement and not share(case.classes, case.ranks, case.ranks - 1)[1]:
            return Reason(Code.NOT_APPLICABLE, f"{name} takes some classes on each rank")
        if case.placement and module and case.classes % case.ranks:
            return Reason(Code.NOT_APPLICABLE, f"{name} takes as many classes on each rank")
        return no_kernels(name, case, kernel.module or module, installed_by) if module else None

    return Implementation(
        name,
        description,
        lambda case: kernels[key(case)].bind(case),
        unavailable,
        temporaries=temporaries,
        torchs_own=not module,
    )


def _loss_parallel(case: Case) -> BoundLoss:
    from torch.distributed.tensor import DTensor, Shard

    _allow_loss_parallel()
    mesh = _mesh(case.device.partition(":")[0], case.ranks)
    settings = {"ignore_index": case.settings["ignore_index"], "reduction": case.reduction}

    def loss(input: Tensor, target: Tensor) -> Tensor:
        shape = torch.Size((len(input), case.classes))
        logits = DTensor.from_local(
            input, mesh, [Shard(-1)], run_check=False, shape=shape, stride=(case.classes, 1)
        )
        found: Any = aten.cross_entropy(logits, target, **settings)
        return cast(Tensor, found.full_tensor())

    return loss


@cache
def _allow_loss_parallel() -> ExitStack:
    """Enter ``loss_parallel`` for good: backward needs it, and it only affects DTensors."""
    from torch.distributed.tensor.parallel import loss_parallel

    stack = ExitStack()
    stack.enter_context(loss_parallel())
    return stack


@cache
def _mesh(kind: str, ranks: int) -> Any:
    return torch.distributed.device_mesh.init_device_mesh(kind, (ranks,))


def _transformer_engine(case: Case) -> BoundLoss:
    from transformer_engine.pytorch.cross_entropy import parallel_cross_entropy

    params = case.settings
    rest = (params["label_smoothing"], False, torch.distributed.group.WORLD, params["ignore_index"])
    return _of_rows(
        case, lambda logits, target: parallel_cross_entropy(logits[None], target[None], *rest)
    )


def _liger_over_ranks(case: Case) -> BoundLoss:
    from liger_kernel.transformers.vocab_parallel_cross_entropy import (
        LigerVocabParallelCrossEntropy,
    )

    params = case.settings
    module = LigerVocabParallelCrossEntropy(params["ignore_index"], params["label_smoothing"])
    ranks = torch.distributed.group.WORLD
    return _of_rows(case, lambda logits, target: module(logits[:, None], target[:, None], ranks))


def _of_rows(case: Case, rows: BoundLoss) -> BoundLoss:
    def loss(input: Tensor, target: Tensor) -> Tensor:
        found = rows(input.clone(), target).flatten()  # some write the gradient over the logits
        if case.reduction != "none":
            found = found.sum()
        if case.reduction == "mean":
            found = found / (target != case.settings["ignore_index"]).sum()
        return found.to(input.dtype)

    return loss


_IGNORED = frozenset({"ignore_index"})
_SMOOTHED = _IGNORED | {"label_smoothing"}
_LIGER_SETTINGS = _SMOOTHED | {"z_loss", "softcap"}
_LIGER = "liger_kernel.transformers.functional:liger_cross_entropy"
_LIGER_LINEAR = "liger_kernel.transformers.functional:liger_fused_linear_cross_entropy"
_QUACK_LINEAR = "quack.linear_cross_entropy:chunked_linear_cross_entropy"
_CUT_LINEAR = "cut_cross_entropy:linear_cross_entropy"
PACKAGES = (
    _package(
        "liger",
        "liger_kernel",
        "Liger Kernel's cross entropy; logits, which it overwrites, are copied",
        {
            LOGITS: _kernel(_LIGER, _LIGER_SETTINGS, overwrites=True),
            HIDDEN: _kernel(_LIGER_LINEAR, _LIGER_SETTINGS, "mean", "sum"),
            BIASED: _kernel(_LIGER_LINEAR, _LIGER_SETTINGS, "mean", "sum"),
            OVER_RANKS: _Kernel(
                _liger_over_ranks,
                _SMOOTHED,
                module="liger_kernel.transformers.vocab_parallel_cross_entropy",
            ),
        },
        temporaries=2,
    ),
    _package(
        "quack",
        "quack",
        "quack's cross entropy",
        {
            LOGITS: _kernel("quack.cross_entropy:cross_entropy", _IGNORED),
            HIDDEN: _kernel(_QUACK_LINEAR, _IGNORED, "mean", "sum"),
        },
        temporaries=1,
    ),
    _package(
        "cut_cross_entropy",
        "cut_cross_entropy",
        "Apple's fused linear cut cross entropy, which leaves small gradients out",
        {HIDDEN: _kernel(_CUT_LINEAR, _IGNORED | {"softcap"})},
        temporaries=1,
        installed_by="cut-cross-entropy",
    ),
)
ONLY_SPLIT = (
    _package(
        "loss_parallel",
        "",
        "PyTorch's cross entropy of a DTensor in `loss_parallel`, over ranks",
        {OVER_RANKS: _Kernel(_loss_parallel, _IGNORED)},
        temporaries=4,
    ),
    _package(
        "transformer_engine",
        "transformer_engine.pytorch.cross_entropy",
        "TransformerEngine's cross entropy over ranks; logits are copied",
        {OVER_RANKS: _Kernel(_transformer_engine, _SMOOTHED)},
        temporaries=2,
        installed_by="transformer_engine[pytorch]",
    ),
)
"""Implementations without losses of whole operands."""
